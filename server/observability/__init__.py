"""Metrics, health, logs and statistics of a node."""
