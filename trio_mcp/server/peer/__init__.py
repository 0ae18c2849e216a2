"""The client, as a server sees it: what it can be asked (forms, questions), and its session."""
