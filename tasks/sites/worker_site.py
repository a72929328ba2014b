"""The site of one worker: its pops, and its block server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from weft.client.consumer.message import M
from weft.client.routing.session import ClientSession
from weft.client.sync_client import Client
from weft.errors import InvalidArgument
from weft.tasks.blocks.block_server import BlockServer, local_address
from weft.tasks.blocks.block_store import BlockStore
from weft.tasks.blocks.job_key import JobKeys
from weft.tasks.call import decode_call
from weft.tasks.heartbeat import WorkerPlace

from .placement import Placement
from .site_directory import SiteDirectory
from .task_location import location_of

if TYPE_CHECKING:
    from weft.tasks.app import App
    from weft.tasks.worker_options import WorkerOptions

log = logging.getLogger("weft.tasks")


def placements_of(
    app: App, session: ClientSession, make: type[M], site: str, queues: Sequence[str]
) -> dict[str, Placement[M]]:
    """The placement of each of a worker's queues that has a task near data."""
    directory = SiteDirectory(session, app.name)
    near = {task.queue for task in app.tasks.values() if task.options.near}
    return {
        queue: Placement(session, queue, make, site, directory, _locator(app))
        for queue in queues
        if queue in near
    }


def _locator(app: App) -> Callable[[bytes], str]:
    tasks = app.tasks

    def locate(body: bytes) -> str:
        try:
            call = decode_call(body)
        except InvalidArgument:
            return ""  # the run of the message reports the error
        task = None if call.graph is not None else tasks.get(call.task)
        return "" if task is None or not task.options.near else location_of(task, call)

    return locate


class SiteServer:
    """The block server of a worker, in its supervisor; its end with `close`."""

    def __init__(self, client: Client, app: str, options: WorkerOptions) -> None:
        store = BlockStore(options.spill or None)
        session: Any = client._session
        host, port = listen_at(options.block_address, session.router.discovery.seeds)
        self._server = BlockServer(store, JobKeys(session, app), app, host, port)
        self.place = WorkerPlace(options.site, store.id, self._server.address)
        log.info(
            "site %s serves the blocks of %s at %s", options.site, store.folder, self.place.blocks
        )

    def close(self) -> None:
        self._server.close()


def listen_at(asked: str, seeds: Sequence[str]) -> tuple[str, int]:
    """Host and port to listen at; port 0 is any."""
    if not asked:
        try:
            return local_address(str(next(iter(seeds)))), 0
        except (OSError, ValueError, StopIteration) as error:
            raise InvalidArgument(
                f"the address of the block server is unknown ({error}): name one with "
                "--block-address"
            ) from None
    host, colon, port = asked.rpartition(":")
    if colon and port.isdigit() and int(port) < 1 << 16:
        return host.strip("[]"), int(port)
    return asked, 0
