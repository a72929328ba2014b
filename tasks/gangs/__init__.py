"""Gangs: tasks that run on several workers at once, as jobs of MPI do."""
