"""`weft cluster`: starts, inspects, shrinks and recovers a cluster."""
