"""Garbage on all ports of a real cluster, for any length of time: ``python -m tests.fuzz``."""
