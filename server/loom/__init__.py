"""The loom: the queue engine and the cluster core of one node, woven together. Pure."""
