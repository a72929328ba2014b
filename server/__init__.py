"""One node: the pure queue engine, and the driver that joins it to disk and network."""
