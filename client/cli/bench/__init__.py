"""`weft bench`: throughput and latency of a node, compared with the floors of the machine."""
