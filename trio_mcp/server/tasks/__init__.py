"""Calls that have become tasks: their life, and the methods that read and change them."""
