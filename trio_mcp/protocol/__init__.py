"""The protocol without I/O: no trio, no sockets, no clock, no randomness, no logging.

Bytes and values come in, values and bytes go out; whatever depends on time or chance is an argument. So every rule of
the specification can be tested as a function.
"""
