"""Streamable HTTP (basic/transports/streamable-http).

`exchange` is the seam: one request and its answer. `endpoint` speaks MCP over it. `h1` fills it with our own HTTP/1.1, `asgi`
with any ASGI server, `h2` with Hypercorn's HTTP/2. `edge` accepts connections.
"""
