"""`weft doctor`: checks this machine and nodes, and advises on every problem found."""
