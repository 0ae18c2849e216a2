"""What a handler can reach: the running server, the context of its call, and how it asks (forms, questions, the journal)."""
