"""Other people's clients and servers against ours."""
