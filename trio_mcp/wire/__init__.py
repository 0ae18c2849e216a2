"""Protocols on the wire without any input or output: bytes in, events out, bytes out."""
