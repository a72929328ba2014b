"""The simulator: the cluster's core in a world where everything breaks, driven by a seed."""
