"""A run whose workers share no files with the driver: everything travels over block servers.

| data | is made by | is served by | is read by |
|---|---|---|---|
| plan, checksums of the maps | driver | driver | each worker, once |
| the lines of a split | driver, when a map asks | driver | the map task |
| the output of a map, a part for each reducer | map task | its worker | the reduce tasks |
| a part of the output | reduce task | its worker | driver |

The driver reads the input once and writes the output once, as with a shared file system. The data
between maps and reduces do not pass through the driver. A worker that is lost loses the outputs of
its maps; the reduce tasks report these maps, and the driver runs them again.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weft.client.transport.blocking_link import run
from weft.errors import JobFailed, PermissionDenied, Unavailable, WeftError
from weft.tasks.blocks.block_client import WantedPart
from weft.tasks.blocks.block_file import BlockDamaged, PartPlace, index_of
from weft.tasks.blocks.block_server import BlockServer
from weft.tasks.blocks.block_store import BlockStore
from weft.tasks.sites.site_directory import SiteDirectory
from weft.tasks.sites.worker_site import listen_at

from .input_split import InputChanged, LineTooLong, read_lines
from .job_plan import JobPlan, PlanLost

if TYPE_CHECKING:
    from weft.tasks.app import App

    from .line_flow import LineFlow
    from .stage import MapResult, ReduceResult

#: How long workers keep the blocks of a run whose driver has died.
TTL_S: Final = 24 * 3600.0
PLAN: Final = "plan"
_SPLIT: Final = "split-"


class RunOrigin(msgspec.Struct, array_like=True, frozen=True):
    """Where the tasks of a run find the plan: an argument of each task."""

    address: str
    job: str


class MapPlace(msgspec.Struct, array_like=True, frozen=True):
    """The output of a map task: its checksum, and the store that has it."""

    checksum: int
    store: str


# --- at the driver ---


class _RunStore(BlockStore):
    """The spill folder of a driver, in which the splits of the input appear when they are read."""

    def __init__(self, folder: str, plan: JobPlan) -> None:
        super().__init__(folder)
        self._plan = plan

    def open(self, app: str, job: str, name: str, part: int) -> PartPlace:
        if not name.startswith(_SPLIT):
            return super().open(app, job, name, part)
        number = name.removeprefix(_SPLIT)
        if part or not number.isdigit() or int(number) >= len(self._plan.splits):
            raise BlockDamaged(f"the run has no {name}")
        try:
            data = read_lines(self._plan.files, self._plan.splits[int(number)])
        except (InputChanged, LineTooLong) as error:
            raise BlockDamaged(str(error)) from None
        handle = os.memfd_create(name)
        try:
            with open(handle, "wb", closefd=False) as file:
                file.write(data)
        except BaseException:
            os.close(handle)
            raise
        return PartPlace(handle, index_of([data]), 0, len(data))


class RunTransfer:
    """The driver's side of one run; used as a context."""

    def __init__(self, app: App, plan: JobPlan, address: str) -> None:
        self._app = app
        self._plan = plan
        self.job = f"run-{secrets.token_hex(8)}"
        self._store = _RunStore(os.path.join(plan.spill, "served"), plan)
        app.blocks.keys.make(self.job)
        session: Any = app.session
        host, port = listen_at(address, session.router.discovery.seeds)
        self._server = BlockServer(self._store, app.blocks.keys, app.name, host, port)
        self._directory = SiteDirectory(app.session, app.name)
        self.origin = RunOrigin(self._server.address, self.job)
        self._stores: set[str] = set()
        self.save(PLAN, msgspec.msgpack.encode(plan))

    def __enter__(self) -> RunTransfer:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the server, and has the workers remove the blocks of the run."""
        for store in self._stores:
            for address in self._addresses(store)[:1]:
                try:
                    self._app.blocks.client.forget(address, self.job)
                except WeftError:
                    pass  # the blocks end by themselves
        self._server.close()

    def save(self, name: str, data: bytes) -> None:
        self._store.put(self._app.name, self.job, name, [data], TTL_S)

    def save_outputs(self, places: Sequence[MapPlace]) -> str:
        """Serves the places of all maps; returns the name for the reduce tasks."""
        name = f"outputs-{secrets.token_hex(4)}"
        self._stores.update(place.store for place in places)
        self.save(name, msgspec.msgpack.encode(list(places)))
        return name

    def collect(self, result: ReduceResult) -> bool:
        """Fetches a part of the output; False if its worker is lost."""
        self._stores.add(result.store)
        for address in self._addresses(result.store):
            try:
                wanted = [WantedPart(result.draft, result.checksum)]
                (data,) = list(self._app.blocks.client.fetch(address, self.job, wanted))
            except (Unavailable, PermissionDenied):
                continue
            if isinstance(data, bytes):
                self._write(result.draft, data)
                return True
        return False

    def _write(self, name: str, data: bytes) -> None:
        path = os.path.join(self._plan.drafts, name)
        try:
            with open(path, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JobFailed(f"{path} cannot be written: {error.strerror}") from None

    def _addresses(self, store: str) -> list[str]:
        return run(self._directory.addresses(store, fresh=True))


# --- at the workers ---


def run_far_map(app: App, flow: LineFlow, number: int, origin: RunOrigin) -> MapResult:
    """A map task: fetches its lines from the driver, keeps its output at this worker."""
    from .stage import MapResult

    plan = _plan(app, origin)
    data = _fetched(app, origin, f"{_SPLIT}{number}")
    segments = flow.split(data, number, plan)
    store = app.blocks.store
    checksum = store.put(app.name, origin.job, _map_name(number), segments, TTL_S)
    return MapResult(checksum, data.count(b"\n"), sum(map(len, segments)), store=store.id)


def run_far_reduce(
    app: App, flow: LineFlow, number: int, outputs: str, origin: RunOrigin
) -> ReduceResult:
    """A reduce task: reads the segments from the workers of the maps, keeps the part here."""
    from .stage import ReduceResult

    plan = _plan(app, origin)
    places = msgspec.msgpack.decode(_fetched(app, origin, outputs), type=list[MapPlace])
    lost: list[int] = []
    data = b"".join(flow.merge(_segments(app, origin, number, places, lost), plan))
    if lost:
        return ReduceResult(lost=lost)
    store, name = app.blocks.store, f"part-{number:05d}-{secrets.token_hex(4)}"
    checksum = store.put(app.name, origin.job, name, [data], TTL_S)
    lines = data.count(b"\n")
    return ReduceResult(name, lines, len(data), store=store.id, checksum=checksum)


def _segments(
    app: App, origin: RunOrigin, part: int, places: Sequence[MapPlace], lost: list[int]
) -> Iterator[bytes]:
    """The segments of one reducer, in the order of the maps, each store over one connection."""
    readers = {
        store: _reader(app, origin, part, store, places)
        for store in dict.fromkeys(place.store for place in places)
    }
    for number, place in enumerate(places):
        segment = next(readers[place.store], None)
        if isinstance(segment, bytes):
            yield segment
        else:
            lost.append(number)


def _reader(
    app: App, origin: RunOrigin, part: int, store: str, places: Sequence[MapPlace]
) -> Iterator[bytes | BlockDamaged]:
    """The segments of one store; ends early if its worker is lost."""
    own = [(number, place) for number, place in enumerate(places) if place.store == store]
    mine = app.blocks.store
    if store == mine.id:
        for number, place in own:
            try:
                yield mine.read(app.name, origin.job, _map_name(number), part, place.checksum)
            except BlockDamaged as error:
                yield error
        return
    wanted = [WantedPart(_map_name(number), place.checksum) for number, place in own]
    addresses = run(SiteDirectory(app.session, app.name).addresses(store, fresh=True))
    for address in addresses[:1]:
        try:
            yield from app.blocks.client.fetch(address, origin.job, wanted, part)
        except (Unavailable, PermissionDenied):
            return


def _map_name(number: int) -> str:
    return f"map-{number:06d}"


def _fetched(app: App, origin: RunOrigin, name: str) -> bytes:
    """A block of the driver. Raises PlanLost if the run is over, else Unavailable."""
    wanted = [WantedPart(name, None)]
    (data,) = list(app.blocks.client.fetch(origin.address, origin.job, wanted))
    if isinstance(data, BlockDamaged):
        raise PlanLost(f"the driver has no {name}: {data}")
    return data


@lru_cache(maxsize=8)
def _plan(app: App, origin: RunOrigin) -> JobPlan:
    """The plan with the folder of this worker for data that do not fit in memory."""
    plan = msgspec.msgpack.decode(_fetched(app, origin, PLAN), type=JobPlan)
    folder = app.blocks.store.job_folder(app.name, origin.job)
    return msgspec.structs.replace(plan, spill=folder)
