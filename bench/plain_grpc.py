"""Workload W1 with a plain gRPC client: generated stubs, batches, several concurrent calls.

`bench.security` starts this module twice, as a producer and as a consumer. From Weft's own client
only the credentials code is used. gRPC from Python is far slower than the Python client's data
path; for the same reason TLS and a token add a smaller fraction here.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Final

import grpc

from weft import limits
from weft.client.cli.bench.child import Child, _of_a_client, environment, ready, say
from weft.client.cli.bench.plan import BenchPlan
from weft.client.cli.bench.workload import Throughput
from weft.client.transport.credentials import Credentials
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc

#: Concurrent calls per side: while one waits for the disk, others are encoded and decoded.
PIPELINE: Final = 8
WAIT_MS: Final = 10_000
_CALL_S: Final = 30
_OPTIONS: Final = [("grpc.max_receive_message_length", limits.GRPC_BYTES_MAX)]


class Worker(Child):
    """Starts one side as a process, in this folder, because `bench` is not an installed package."""

    def __init__(self, role: str, task: dict[str, Any]) -> None:
        self._name = role
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.plain_grpc", role, json.dumps(task)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            cwd=Path(__file__).resolve().parents[1], env=environment() | _of_a_client(),
            start_new_session=True,
        )  # fmt: skip


def measure(plan: BenchPlan, client: Any, server: str, queue: str) -> Throughput:
    """The counterpart of `workload.measure` over gRPC."""
    task = {"server": server, "queue": queue, "messages": plan.messages, "size": plan.size,
            "batch": plan.batch}  # fmt: skip
    with Worker("produce", task) as producer, Worker("consume", task) as consumer:
        producer.read()
        consumer.read()
        before = client.status()
        consumer.go()
        producer.go()
        consumed, produced = consumer.read(), producer.read()
    after = client.status()
    left = client.queue(queue).stats()
    assert left.ready + left.leased == 0, "as many were acked as were pushed, and some are left"
    count = plan.messages
    seconds = (consumed["end_ns"] - produced["start_ns"]) / 1e9
    return Throughput(
        count, seconds, count / seconds, (after.cpu_us - before.cpu_us) / count,
        produced["cpu_us"] / count, consumed["cpu_us"] / count, after.commits - before.commits,
    )  # fmt: skip


def produce(stub: Any, metadata: Any, task: dict[str, Any]) -> dict[str, int]:
    bodies = [bytes([number % 256]) * task["size"] for number in range(task["batch"])]
    full, rest = divmod(task["messages"], task["batch"])
    under_way: deque[Any] = deque()
    ready()
    cpu, start = _cpu_us(), time.monotonic_ns()
    for number, count in enumerate([task["batch"]] * full + [rest] * bool(rest)):
        messages = [pb.OutMessage(body=body) for body in bodies[:count]]
        request = pb.PushRequest(queue=task["queue"], messages=messages, producer=1, batch=number)
        under_way.append(stub.Push.future(request, timeout=_CALL_S, metadata=metadata))
        if len(under_way) == PIPELINE:
            under_way.popleft().result()
    for call in under_way:
        call.result()
    return {"start_ns": start, "cpu_us": _cpu_us() - cpu}


def consume(stub: Any, metadata: Any, task: dict[str, Any]) -> dict[str, int]:
    def pop() -> Any:
        request = pb.PopRequest(queue=task["queue"], limit=task["batch"], wait_ms=WAIT_MS)
        return stub.Pop.future(request, timeout=_CALL_S, metadata=metadata)

    ready()
    cpu = _cpu_us()
    taken = done = 0
    batches = -(-task["messages"] // task["batch"])
    # Never more pops than batches to come: the loop awaits the oldest pop, which would hang if the
    # node had served a younger pop with the last batch.
    pops = deque(pop() for _ in range(min(PIPELINE, batches)))
    acks = deque[tuple[int, Any]]()
    while done < task["messages"]:
        if taken < task["messages"]:
            messages = pops.popleft().result().messages
            assert messages, f"nothing came for {WAIT_MS} ms; {done} were acked"
            taken += len(messages)
            bodies = [message.body for message in messages]  # A consumer reads the bodies.
            assert len(bodies[0]) == task["size"]
            receipts = [message.receipt for message in messages]
            request = pb.AckRequest(queue=task["queue"], receipts=receipts)
            call = stub.Ack.future(request, timeout=_CALL_S, metadata=metadata)
            acks.append((len(messages), call))
            if taken + len(pops) * task["batch"] < task["messages"]:
                pops.append(pop())
        if len(acks) == PIPELINE or taken >= task["messages"]:
            count, call = acks.popleft()
            answer = call.result()
            assert not answer.lost, f"{len(answer.lost)} leases were lost"
            done += count
    result = {"end_ns": time.monotonic_ns(), "cpu_us": _cpu_us() - cpu}
    for call in pops:
        call.cancel()
    return result


def _cpu_us() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e6)


def main() -> None:
    role, task = sys.argv[1], json.loads(sys.argv[2])
    credentials = Credentials.of(None, None)
    with credentials.channel(task["server"], _OPTIONS) as channel:
        grpc.channel_ready_future(channel).result(_CALL_S)
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        say({"produce": produce, "consume": consume}[role](stub, credentials.metadata, task))


if __name__ == "__main__":
    main()
