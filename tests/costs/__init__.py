"""The cost of an operation, in counts independent of any clock, with bounds."""
