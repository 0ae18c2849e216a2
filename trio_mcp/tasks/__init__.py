"""Where tasks are kept: `MemoryTaskStore`, `SQLiteTaskStore`, and `TaskStore` for one of your own."""
