"""The producer and consumer processes, written with the client's public batch calls."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from typing import Any, Final

import msgspec

import weft
from weft.errors import DeadlineExceeded, WeftError

from .child import ready, say, say_error

#: Concurrent pops and acks: while one waits for the disk, another decodes.
PIPELINE: Final = 16
#: A consumer fails after this long without a message.
SILENCE_MS: Final = 30_000
#: Seconds between two progress lines.
TELL_S: Final = 0.25


class BenchTask(msgspec.Struct, frozen=True):
    role: str
    servers: str
    queue: str
    messages: int
    size: int
    batch: int


def produce(task: BenchTask) -> dict[str, Any]:
    """Pushes prepared batches through a producer; returns when all messages are durable."""
    bodies = [os.urandom(task.size) for _ in range(task.batch)]
    full, rest = divmod(task.messages, task.batch)
    with weft.connect(task.servers) as client, client.queue(task.queue).producer() as producer:
        client.status()
        ready()
        cpu, start = _cpu_us(), time.monotonic_ns()
        for _ in range(full):
            producer.send_many(bodies)
        producer.send_many(bodies[:rest])
        producer.flush()
        return {"start_ns": start, "cpu_us": _cpu_us() - cpu}


async def consume(task: BenchTask) -> dict[str, Any]:
    """Pops and acks in batches until every message is acked."""
    done = 0
    told = time.monotonic()

    async def work(queue: weft.aio.Queue) -> None:
        nonlocal done, told
        while done < task.messages:
            batch = await queue.pop_many(task.batch, wait_ms=SILENCE_MS)
            if not batch:
                raise DeadlineExceeded(
                    f"no message arrived for {SILENCE_MS} ms; {done} messages were acked"
                )
            await queue.ack_many(batch)
            done += len(batch)
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                say({"done": done})

    async with weft.aio.connect(task.servers) as client:
        queue = client.queue(task.queue)
        await client.status()
        ready()
        cpu = _cpu_us()
        background_workers = [asyncio.create_task(work(queue)) for _ in range(PIPELINE)]
        # The first task that finishes cancels the others, which wait for messages in vain.
        _, others = await asyncio.wait(background_workers, return_when=asyncio.FIRST_COMPLETED)
        result = {"end_ns": time.monotonic_ns(), "cpu_us": _cpu_us() - cpu}
        for one in others:
            one.cancel()
        for outcome in await asyncio.gather(*background_workers, return_exceptions=True):
            if isinstance(outcome, WeftError):
                raise outcome
        return result


def _cpu_us() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e6)


def main() -> None:
    task = msgspec.convert(json.loads(sys.argv[1]), BenchTask)
    try:
        say(produce(task) if task.role == "produce" else asyncio.run(consume(task)))
    except WeftError as error:
        say_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
