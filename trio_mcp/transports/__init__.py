"""The edge: bytes in and out.

A transport reads messages, hands requests to the engine and gives each call an outlet. What it must provide is small: a
place to send to (`scopes.call.Outlet`) and the signal that a peer has gone.
"""
