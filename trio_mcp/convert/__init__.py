"""Python types and JSON: schema, checked loading and checked dumping from one tree.

`Compiler.compile(annotation)` makes a `Codec`. Its `schema` is what a peer reads, `load` takes a JSON value to the
Python value and reports every mismatch with its path, `dump` takes the Python value to JSON and refuses what is not of
the type. No trio, no I/O.
"""
