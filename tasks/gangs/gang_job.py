"""A gang's job: its records and keys.

| queue of the app's gang queue `Q` | messages |
|---|---|
| `Q.jobs`, ordered | jobs that wait for their workers: one assembles at a time |
| `Q` | the members of the assembling job: tasks, one for each worker |
| `Q.runs` | assembled jobs, each watched by one worker |

| step | record |
|---|---|
| submit | a message of `Q.jobs`; its id is the id of the future |
| assemble | a state row with a new *epoch*; members of `Q` write a roster row each, and wait |
| start | in one transaction: out of `Q.jobs`, into `Q.runs`, the state row says "running" |
| time-out | the state row says "released"; the job fails, or goes to the end of `Q.jobs` |
| end | the outcome of the job, at its id; or, after a failure with attempts left, `Q.jobs` again |

**Invariants.** Only the job at the head of `Q.jobs` has waiting members, so no two jobs hold half
of their workers each. A member starts its function only in a running epoch, and once: its roster
row is written on the condition that there is none. A lost worker fails the whole epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from weft.client.admin.queues import AdminCore
from weft.client.key_group import KeyGroup
from weft.client.kv_core import KvCore
from weft.client.routing.session import ClientSession
from weft.errors import QueueExists, VersionMismatch
from weft.ids import MessageId
from weft.tasks.batch_results import BatchResults
from weft.tasks.call import batch_of, failed_prefix, result_prefix
from weft.tasks.failed_call import FailedCalls
from weft.tasks.outcome import Outcome, TaskError, blocks_of
from weft.tasks.signature import encode
from weft.tasks.submission import LEASE_MS, create_queue

#: Members of a gang: more are several jobs.
GANG_SIZE_MAX: Final = 4_096
#: A member is delivered before the tasks of its queue.
MEMBER_PRIORITY: Final = 9
#: How long records of a gang outlive their last use.
RECORD_TTL_MS: Final = 24 * 3600 * 1000
ASSEMBLING, RUNNING, RELEASED = "assembling", "running", "released"


class GangJob(msgspec.Struct, array_like=True, frozen=True):
    """The body of a message of `Q.jobs`. New fields are added at the end, with defaults."""

    name: str
    size: int
    args: bytes
    kwargs: bytes
    attempts: int
    assemble_s: float
    wait: bool
    ttl_ms: int
    #: The id of the future; empty in the first message, which has this id itself.
    id: str = ""
    attempt: int = 1


class GangMember(msgspec.Struct, array_like=True, frozen=True):
    """A worker of a gang, as all its members see it."""

    rank: int
    host: str
    #: The address by which the worker reaches the cluster.
    address: str
    #: A port of the address that was free when the worker joined.
    port: int
    pid: int


class GangState(msgspec.Struct, array_like=True, frozen=True):
    """The state row of a job."""

    epoch: str
    phase: str
    members: list[GangMember] = []


class GangRun(msgspec.Struct, array_like=True, frozen=True):
    """The body of a message of `Q.runs`."""

    job: GangJob
    epoch: str
    #: The tasks of the members, by rank.
    tasks: list[str]
    members: list[GangMember]


def jobs_queue(queue: str) -> str:
    return f"{queue}.jobs"


def runs_queue(queue: str) -> str:
    return f"{queue}.runs"


def state_key(app: str, job: str) -> str:
    return f"tasks/{app}/g/{job}"


def roster_prefix(app: str, job: str, epoch: str) -> str:
    return f"tasks/{app}/g/{job}/{epoch}/"


def launch_key(app: str, job: str, epoch: str, number: int, part: str) -> str:
    """A row of the launch of an MPI program: its commands, or its end."""
    return f"tasks/{app}/h/{job}/{epoch}/{number}/{part}"


async def create_gang_queues(session: ClientSession, queue: str) -> None:
    """Creates the three queues; existing ones keep their settings."""
    await create_queue(session, queue)
    await create_queue(session, runs_queue(queue))
    try:
        settings = {"lease_ms": LEASE_MS, "ordered": True}
        await AdminCore(session).create_queue(jobs_queue(queue), settings)
    except QueueExists:
        pass


async def outcome_of(session: ClientSession, app: str, number: MessageId) -> Outcome | None:
    results = BatchResults(session, app, number, None)
    await results.scan()
    return results.found.get(number.index)


async def outcomes_of(
    session: ClientSession, app: str, numbers: Sequence[MessageId]
) -> dict[MessageId, tuple[BatchResults, Outcome]]:
    """The outcomes of those of some tasks that have ended."""
    batches: dict[int, list[MessageId]] = {}
    for number in numbers:
        batches.setdefault(batch_of(number), []).append(number)
    found: dict[MessageId, tuple[BatchResults, Outcome]] = {}
    for some in batches.values():
        results = BatchResults(session, app, some[0], None)
        await results.scan()
        for number in some:
            if number.index in results.found:
                found[number] = (results, results.found[number.index])
    return found


async def store_outcome(
    session: ClientSession, app: str, number: MessageId, outcome: Outcome, job: GangJob, queue: str
) -> None:
    """Stores the end of a job, unless it has one: a cancelled job keeps that."""
    if await outcome_of(session, app, number) is not None:
        return
    kv = KvCore(session)
    if isinstance(outcome, TaskError):
        group = KeyGroup(session, failed_prefix(app, number), number.partition)
        body = encode(msgspec.structs.replace(job, id="", attempt=1))
        row = encode(FailedCalls(jobs_queue(queue), [number.index], [body]))
        await kv.insert(group.key(f"{number.index:x}"), row, ttl_ms=job.ttl_ms)
    group = KeyGroup(session, result_prefix(app, number), number.partition)
    ((index, data),) = blocks_of([(number.index, outcome)])
    try:
        await kv.insert(group.key(f"{index:x}"), data, ttl_ms=job.ttl_ms, if_version=0)
    except VersionMismatch:
        pass  # cancelled in this moment
