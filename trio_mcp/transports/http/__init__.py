"""Streamable HTTP (basic/transports/streamable-http).

`exchange` is the seam: one request and its answer. `endpoint` speaks MCP over it. `h1` and `h2` fill it with our own
HTTP/1.1 and HTTP/2, `asgi` with any ASGI server. `edge` accepts connections.
"""
