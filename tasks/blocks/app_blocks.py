"""The blocks of an app in one process: put at this site, read from any site, made again if lost.

A read looks in this order, and takes the first verified part:

1. the spill folder of this process, if the block is there;
2. the block servers of the store that the reference names, then of the stores in the block's row;
3. the task that made the block, run again here. Its effects in Weft are dropped, and its result
   must have the same checksum.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final

import msgspec

from weft.client import arguments
from weft.client.producer.batch import Body
from weft.client.transport.blocking_link import run
from weft.errors import BlockLost, PermissionDenied, Unavailable, UsageError
from weft.ids import MessageId
from weft.tasks.call import decode_call
from weft.tasks.pickled_arguments import decode_arguments
from weft.tasks.sites.site_directory import SiteDirectory
from weft.tasks.task_context import ContextSlot, EffectWrite, TaskContext, slot

from .block import MAKER_BYTES_MAX, TTL_S, TTL_S_MAX, Block, BlockRow, block_row
from .block_client import BlockClient, WantedPart
from .block_file import BlockDamaged
from .block_store import BLOCK_BYTES_MAX, BlockStore
from .job_key import JobKeys

if TYPE_CHECKING:
    from weft.tasks.app import App

log = logging.getLogger("weft.tasks")

#: The job of the blocks that tasks put.
JOB: Final = "tasks"
#: A lost block may be made from lost blocks; deeper is a mistake.
DEPTH_MAX: Final = 32


class AppBlocks:
    """Threads may share an instance."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.site = ""
        self._folder: str | None = None
        self._store: BlockStore | None = None
        self._lock = threading.Lock()
        self._network: tuple[object, JobKeys, BlockClient, SiteDirectory] | None = None
        self._depth = threading.local()

    def settle(self, site: str, folder: str) -> None:
        """This process is a worker of a site, with a spill folder; "" for the default one."""
        self.site, self._folder, self._store = site, folder or None, None

    def close(self) -> None:
        """Closes the connections to block servers."""
        with self._lock:
            network, self._network = self._network, None
        if network is not None:
            network[2].close()

    @property
    def store(self) -> BlockStore:
        with self._lock:
            if self._store is None:
                self._store = BlockStore(self._folder)
            return self._store

    @property
    def keys(self) -> JobKeys:
        return self._links()[0]

    @property
    def client(self) -> BlockClient:
        return self._links()[1]

    def _links(self) -> tuple[JobKeys, BlockClient, SiteDirectory]:
        """For the app's session of now: the app may connect to another cluster."""
        session = self._app.session
        with self._lock:
            if self._network is None or self._network[0] is not session:
                keys = JobKeys(session, self._app.name)
                directory = SiteDirectory(session, self._app.name)
                client = BlockClient(self._app.name, keys)
                self._network = (session, keys, client, directory)
            return self._network[1:]

    # --- put ---

    def put(self, context: TaskContext, number: int, data: Body, ttl: float = TTL_S) -> Block:
        """Stores the `number`-th block of a running task; see `TaskContext.put_block`."""
        arguments.check_number("ttl", ttl, 1, TTL_S_MAX)
        raw = arguments.as_bytes("data", data, BLOCK_BYTES_MAX, "split it into several blocks")
        inline = self._app.inline_runner
        name = f"{context.id}-{number}"
        if inline is not None:
            inline.blocks[name] = raw
            return Block(JOB, name, 0, len(raw), self.site, "")
        if not self.site:
            raise UsageError(
                "blocks are stored by workers of an app with near tasks: declare near= at the "
                "tasks that read the blocks"
            )
        self.keys.make(JOB)
        checksum = self.store.put(self._app.name, JOB, name, [raw], ttl)
        block = Block(JOB, name, checksum, len(raw), self.site, self.store.id)
        maker = context.body if len(context.body) <= MAKER_BYTES_MAX else b""
        row = msgspec.msgpack.encode(BlockRow([self.store.id], context.id, maker))
        context.effects.writes.append(
            EffectWrite(block_row(self._app.name, block), row, int(ttl * 1000))
        )
        return block

    # --- read ---

    def read(self, block: Block) -> bytes:
        """The data of a block, verified.

        Raises BlockLost if no store has the block and it cannot be made again.
        """
        if not isinstance(block, Block):
            raise arguments.wrong_type("block", "a Block", block)
        inline = self._app.inline_runner
        if inline is not None:
            if block.name not in inline.blocks:
                raise BlockLost(f"no task has put the block {block.name} in this inline run")
            return inline.blocks[block.name]
        if self._is_here(block):
            try:
                return self.store.read(self._app.name, block.job, block.name, 0, block.checksum)
            except BlockDamaged as error:
                log.info("a block is not at its place: %s", error)
        data = self._fetched(block, block.store)
        if data is not None:
            return data
        row = self._row(block)
        for store in reversed(row.stores if row else []):
            if store != block.store and (data := self._fetched(block, store)) is not None:
                return data
        if row is None or not row.maker:
            raise BlockLost(
                f"no worker has the block {block.name}, and it cannot be made again: submit the "
                "task that made it"
            )
        return self._made_again(block, row)

    async def aio_read(self, block: Block) -> bytes:
        """`read`, on an event loop."""
        return await asyncio.to_thread(self.read, block)

    def _is_here(self, block: Block) -> bool:
        return bool(self.site) and os.path.exists(
            self.store.path(self._app.name, block.job, block.name)
        )

    def _fetched(self, block: Block, store: str) -> bytes | None:
        _, client, directory = self._links()
        for fresh in (False, True):  # a worker that has just started has a new address
            for address in run(directory.addresses(store, fresh=fresh)):
                try:
                    wanted = [WantedPart(block.name, block.checksum)]
                    (data,) = list(client.fetch(address, block.job, wanted))
                except (Unavailable, PermissionDenied) as error:
                    log.info("a block was not fetched: %s", error.message)
                    continue
                if isinstance(data, bytes):
                    return data
                log.info("a block was not fetched from %s: %s", address, data)
                return None  # the others of the store share the folder
        return None

    def _row(self, block: Block) -> BlockRow | None:
        raw = self._app.client.kv.lookup(block_row(self._app.name, block))
        return None if raw is None else msgspec.msgpack.decode(raw, type=BlockRow)

    # --- make again ---

    def _made_again(self, block: Block, row: BlockRow) -> bytes:
        depth: int = getattr(self._depth, "value", 0)
        if depth >= DEPTH_MAX:
            raise BlockLost(f"the block {block.name} rests on more than {DEPTH_MAX} lost blocks")
        log.warning("the block %s is lost: task %s runs again for it", block.name, row.task)
        self._depth.value = depth + 1
        try:
            context = self._run_maker(row)
        finally:
            self._depth.value = depth
        folder = self.store.path(self._app.name, block.job, block.name)
        try:
            data = self.store.read(self._app.name, block.job, block.name, 0, block.checksum)
        except BlockDamaged:
            raise BlockLost(
                f"the block {block.name} has another content at its second run, or none: the task "
                f"{context.name} must be deterministic"
            ) from None
        found = BlockRow([*row.stores, self.store.id], row.task, row.maker)
        ttl_ms = max(1000, int((os.stat(folder).st_mtime - time.time()) * 1000))
        key = block_row(self._app.name, block)
        self._app.client.kv.insert(key, msgspec.msgpack.encode(found), ttl_ms=ttl_ms)
        return data

    def _run_maker(self, row: BlockRow) -> TaskContext:
        call = decode_call(row.maker)
        task = self._app.tasks.get(call.task)
        if task is None or task.is_async or not self.site:
            raise BlockLost(
                f"a lost block is made again by a worker that knows its task {call.task}, which "
                "is no coroutine"
            )
        context = TaskContext(task, int(MessageId.parse(row.task)), 1, row.maker)
        here = ContextSlot()
        here.context = context
        token = slot.set(here)
        try:
            args, kwargs = decode_arguments(task, call)
            task.function(*args, **kwargs)
        finally:
            slot.reset(token)
        return context
