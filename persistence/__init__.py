"""Persistence: the Store protocol, LevelDB and memory stores, key layout, checksummed records."""
