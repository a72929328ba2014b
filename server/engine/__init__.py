"""The queue engine: pure. No socket, thread, clock, randomness or disk."""
