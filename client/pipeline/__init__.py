"""Subscriptions, reservations and staged publish, for stream processors."""
