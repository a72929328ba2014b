"""The Dramatiq actors of the measurements; BENCH_REDIS is the server's URL."""

import os
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

_URL = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:1")
broker = RedisBroker(url=_URL)
broker.add_middleware(Results(backend=RedisBackend(url=_URL)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def null(value):
    return value


@dramatiq.actor(store_results=True)
def sleep(value):
    time.sleep(value)
    return value
