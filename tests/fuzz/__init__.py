"""Garbage on all ports of a real cluster, for as long as one likes: ``python -m tests.fuzz``."""
