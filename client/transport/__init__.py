"""Connections from the client to nodes, and the calls in flight on them."""
