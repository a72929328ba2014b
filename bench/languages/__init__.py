"""Weft from other languages, beside NATS, Redis and RabbitMQ: `python -m bench.languages`."""
