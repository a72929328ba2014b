"""What is kept: the Store protocol, LevelDB and memory stores, key layout, checksummed records."""
