"""Routing and retry: selects the node for a request and decides on retries."""
