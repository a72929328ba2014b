"""Pop, prefetch, leases and acknowledgements."""
