"""The Python client: async implementation, sync wrapper, producer, consumer, command line."""
