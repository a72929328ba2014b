"""`weft bench`: what this node can do, beside what its machine can do at all."""
