"""How a handler asks: forms, questions, the journal of what was answered, and the context that it gets."""
