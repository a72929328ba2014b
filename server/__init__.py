"""One node: the pure queue engine, and the driver for disk and network."""
