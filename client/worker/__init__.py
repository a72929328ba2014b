"""The worker: a handler for each message, with retries, a time limit and a drain."""
