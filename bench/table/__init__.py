"""The hash table beside Redis and etcd: `python -m bench.table`."""
