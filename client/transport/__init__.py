"""Connections from the client to nodes, and calls in flight."""
