"""Sites: where workers and their data are, and the placement of tasks near their data."""
