"""The cost of security: workload W1 with and without encryption and tokens, in one run.

    python -m bench.security

Three nodes run at once: a plain node, a node that requires tokens, and a node with TLS, an
encrypted data path (Noise) and tokens. The workload of `weft bench` (one producer process, one
consumer process, 128-byte messages in batches, every message delivered and acked, fsync before each
acknowledgement) runs on the nodes in turn. Each round starts with another node, so that other load
on the machine affects all nodes alike, and each result is compared with the plain node's result of
the same round. Processor time is counted for the node and for both clients.

Then the same nodes run W1 over gRPC in the same order: plain against TLS and tokens, as for a
client in any language (`plain_grpc`). Finally the cost of sealing alone: the same frames through
`weft.transport.noise_transport`, sealed and opened, without a socket.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import weft
from weft.client.cli.bench import workload
from weft.client.cli.bench.plan import BenchPlan
from weft.client.cli.bench.workload import Throughput
from weft.server.security import token_file
from weft.testing import cluster
from weft.transport import noise, noise_transport, zmtp

from . import plain_grpc

PLAIN, TOKENS, FULL = "plain", "tokens", "TLS and tokens"
#: The series over gRPC, on the same nodes.
OVER_GRPC: Final = {PLAIN: "gRPC, plain", FULL: "gRPC, TLS and tokens"}
#: Target: the largest acceptable loss, as a fraction of the plain rate.
COST_MAX: Final = 0.10


@dataclass(frozen=True)
class Variant:
    name: str
    servers: list[str]
    token: str = ""
    ca: str = ""

    @contextmanager
    def credentials(self) -> Iterator[None]:
        """Sets the credentials in the environment, where the worker processes read them."""
        own = {"WEFT_TOKEN": self.token, "WEFT_TLS": self.ca}
        before = {name: os.environ.pop(name, None) for name in own}
        os.environ.update({name: value for name, value in own.items() if value})
        try:
            yield
        finally:
            for name, value in before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value


def certificate(folder: Path) -> Path:
    """Creates a self-signed certificate for 127.0.0.1, with the key file beside it."""
    pem = folder / "node.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", "/CN=bench", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(pem.with_suffix(".key")), "-out", str(pem)],
        check=True, capture_output=True,
    )  # fmt: skip
    return pem


@contextmanager
def variants(folder: Path, durability: str) -> Iterator[list[Variant]]:
    file = folder / "tokens.json"
    grants = ["push:*", "consume:*", "admin:*", "watch:*"]
    token = token_file.create(file, "bench", grants, 0)[1]
    pem = certificate(folder)
    tls: dict[str, Any] = {"tls_cert": str(pem), "tls_key": str(pem.with_suffix(".key"))}
    kinds: list[tuple[str, dict[str, Any], str, str]] = [
        (PLAIN, {}, "", ""),
        (TOKENS, {"tokens": str(file)}, token, ""),
        (FULL, {"tokens": str(file), **tls}, token, str(pem)),
    ]
    with ExitStack() as ends:
        made = []
        for number, (name, settings, shown, ca) in enumerate(kinds):
            node = ends.enter_context(
                cluster(1, data=folder / f"node-{number}", durability=durability, **settings)
            )
            made.append(Variant(name, node.servers, shown, ca))
        yield made


def measure(variant: Variant, plan: BenchPlan, *, grpc: bool = False) -> Throughput:
    with variant.credentials(), weft.connect(variant.servers) as client:
        name = f"bench-{secrets.token_hex(4)}"
        client.create_queue(name)
        try:
            if grpc:
                return plain_grpc.measure(plan, client, variant.servers[0], name)
            servers = ",".join(variant.servers)
            return workload.measure(plan, client, servers, name, lambda done: None)
        finally:
            client.delete_queue(name)


def sealing_us(size: int, batch: int, count: int = 300) -> float:
    """CPU microseconds to seal and open one message, one way, both ends together."""
    frames = [b"head", os.urandom(size * batch)]
    secret = os.urandom(noise_transport.KEY_BYTES)
    caller = noise_transport.call(noise.public_of(secret), noise_transport.CALLED)
    called = noise_transport.called(secret, noise_transport.CALLS)
    noise_transport.hear(called, noise_transport.say(caller))
    noise_transport.hear(caller, noise_transport.say(called))
    scratch = noise_transport.scratch()
    sealer = noise_transport.Sealer(caller.split()[0], scratch)
    reader = noise_transport.SealedReader(
        called.split()[1], zmtp.FrameReader(1 << 30, bytearray), scratch
    )
    used = 0.0
    for _ in range(count):
        began = time.process_time()
        pieces = sealer.seal(zmtp.message(frames))
        used += time.process_time() - began
        left = b"".join(pieces)
        while left:
            room = reader.room
            came = min(len(left), len(room))
            room[:came], left = left[:came], left[came:]  # Copies, as the kernel does.
            began = time.process_time()
            reader.filled(came)
            used += time.process_time() - began
        reader.messages.clear()
    return used / count / batch * 1e6


def report(taken: dict[str, list[Throughput]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, rounds in taken.items():
        plain = taken[OVER_GRPC[PLAIN] if name in OVER_GRPC.values() else PLAIN]
        pairs = list(zip(rounds, plain, strict=True))
        found[name] = asdict(Throughput.median(rounds)) | {
            "cost": 1 - median(one.messages_per_s / of.messages_per_s for one, of in pairs),
            "cpu_cost": median(_cpu_us(one) / _cpu_us(of) for one, of in pairs) - 1,
            "rates": [round(one.messages_per_s) for one in rounds],
        }
    return found


def _cpu_us(one: Throughput) -> float:
    return one.server_cpu_us + one.producer_cpu_us + one.consumer_cpu_us


def table(found: dict[str, Any]) -> str:
    lines = [
        "| | messages/s | cost | more CPU | node CPU, µs/message | producer | consumer |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        plain = name in (PLAIN, OVER_GRPC[PLAIN])
        cost = " | " if plain else f"{row['cost']:.1%} | {row['cpu_cost']:.1%}"
        lines.append(
            f"| {name} | {row['messages_per_s']:,.0f} | {cost} | {row['server_cpu_us']:.2f} | "
            f"{row['producer_cpu_us']:.2f} | {row['consumer_cpu_us']:.2f} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.security", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="of one turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grpc-messages", type=int, default=30_000, help="of one turn over gRPC")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--durability", choices=("disk", "os"), default="disk")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    plan = BenchPlan(asked.messages, asked.size, asked.batch, asked.rounds, 10, 0)
    grpc_plan = BenchPlan(asked.grpc_messages, asked.size, asked.batch, asked.rounds, 10, 0)
    folder = Path(tempfile.mkdtemp(prefix=".weft-security-", dir=Path.cwd()))
    taken: dict[str, list[Throughput]] = {}
    try:
        with variants(folder, asked.durability) as made:
            for number in range(asked.rounds + 1):
                first = number % len(made)  # Rotate: the disk still flushes the previous writes.
                turns = made[first:] + made[:first]
                for variant in turns:
                    one = measure(variant, plan)
                    if number:  # The first round is the warm-up.
                        taken.setdefault(variant.name, []).append(one)
                for variant in turns:
                    if variant.name in OVER_GRPC:
                        one = measure(variant, grpc_plan, grpc=True)
                        if number:
                            taken.setdefault(OVER_GRPC[variant.name], []).append(one)
    finally:
        shutil.rmtree(folder)
    names = [PLAIN, TOKENS, FULL, *OVER_GRPC.values()]
    found = report({name: taken[name] for name in names})
    print(table(found))
    one_way = sealing_us(asked.size, asked.batch)
    print(f"\nsealing, CPU for each message: {one_way:.3f} µs a way, {2 * one_way:.3f} for both")
    found["sealing_us_per_way"] = one_way
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    costs = [found[name]["cost"] for name in (FULL, OVER_GRPC[FULL])]
    return 0 if max(costs) < COST_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
