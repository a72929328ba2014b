"""The Celery app of the measurements; BENCH_REDIS is the server's URL."""

import os
import time

from celery import Celery

_URL = os.environ.get("BENCH_REDIS", "")
app = Celery("bench", broker=_URL, backend=_URL)
# Late acks are the promise that compares with Weft's: a task whose worker dies runs again.
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=4, task_ignore_result=False)


@app.task
def null(value):
    return value


@app.task
def sleep(value):
    time.sleep(value)
    return value
