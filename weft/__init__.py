"""Weft: a durable message queue woven over all your machines."""
