"""A process that serves and does nothing else: its standard streams, its signals, its end.

Only `Server.run` and the commands come here. A server inside somebody's program leaves the process as it is.
"""
