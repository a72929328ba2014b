"""`weft doctor`: what is wrong with this machine or node, and what to do about it."""
