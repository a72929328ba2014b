"""Spark and Weft under faults: drivers, executors and nodes die; every row counts once."""
