"""`weft model`: the analytical models and simulators of the papers, without a node."""
