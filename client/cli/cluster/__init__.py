"""`weft cluster`: a cluster's life, for the one who operates it."""
