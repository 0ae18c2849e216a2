"""The official conformance suite against our servers."""
