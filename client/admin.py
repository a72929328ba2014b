"""The verbs that make, change, list and drop queues, and those that ask about the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

import msgspec

from weft import limits
from weft.errors import InvalidArgument, QueueNotFound
from weft.proto import streams, wire
from weft.proto.settings import Settings

from .router import ANY
from .session import Session
from .stats import QueueStats
from .subscription import SubscriptionStats

#: Queues in one answer; a longer list takes several.
PAGE: Final = 1000

#: Settings by name, checked: `Settings` itself is an array on the wire.
_SettingsByName = msgspec.defstruct(
    "SettingsByName",
    [(name, type(default)) for name, default in msgspec.structs.asdict(Settings()).items()],
)


def make_settings(given: Mapping[str, Any]) -> Settings:
    """The settings of a new queue; what is not given is the default."""
    _check_names(given)
    try:
        named = msgspec.convert(msgspec.structs.asdict(Settings()) | dict(given), _SettingsByName)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"a setting has the wrong type: {error}") from None
    settings = Settings(*msgspec.structs.astuple(named))
    settings.check()
    return settings


class QueueSettings(TypedDict, total=False):
    """What `create_queue` and `update_queue` take by name; see `weft.proto.settings.Settings`."""

    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    ordered: bool


class AdminCore:
    def __init__(self, session: Session) -> None:
        self._session = session

    async def create_queue(self, name: str, settings: Mapping[str, Any]) -> bool:
        limits.check_queue_name(name)
        request = wire.CreateQueue(name, make_settings(settings))
        return (await self._session.ask(ANY, request, wire.Created, None)).created

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        limits.check_queue_name(name)
        _check_names(changes)
        if not changes:
            raise InvalidArgument("update_queue wants at least one setting to change")
        request = wire.UpdateQueue(name, dict(changes))
        await self._session.ask(ANY, request, wire.Done, None)

    async def delete_queue(self, name: str) -> int:
        limits.check_queue_name(name)
        return (await self._session.ask(ANY, wire.DeleteQueue(name), wire.Done, None)).count

    async def list_queues(self, prefix: str) -> list[QueueStats]:
        found: list[QueueStats] = []
        more = True
        while more:
            request = wire.ListQueues(prefix, found[-1].name if found else "", PAGE)
            page = await self._session.ask(ANY, request, wire.Queues, None)
            found += map(QueueStats.of, page.queues)
            more = page.more and bool(page.queues)
        return found

    async def settings_of(self, names: Iterable[str] | None) -> dict[str, Settings]:
        """Those queues of these names that there are; None for all. A token that may not list may
        still ask about its own."""
        if names is None:
            return {info.name: info.settings for info in await self.list_queues("")}
        found: dict[str, Settings] = {}
        for name in names:
            limits.check_queue_name(name)
            try:
                answer = await self._session.ask(ANY, wire.DescribeQueue(name), wire.Queues, None)
            except QueueNotFound:
                continue
            found[name] = answer.queues[0].settings
        return found

    async def delete_subscription(self, queue: str, name: str) -> int:
        limits.check_queue_name(queue)
        limits.check_name("a subscription", name)
        request = streams.DeleteSubscription(queue, name)
        return (await self._session.ask(ANY, request, wire.Done, None)).count

    async def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        limits.check_queue_name(queue)
        request = streams.ListSubscriptions(queue)
        found = await self._session.ask(ANY, request, streams.Subscriptions, None)
        return list(map(SubscriptionStats.of, found.subscriptions))

    async def view(self) -> wire.ViewInfo:
        return await self._session.ask(ANY, wire.View(), wire.ViewInfo, None)

    async def status(self) -> wire.StatusInfo:
        return await self._session.ask(ANY, wire.Status(), wire.StatusInfo, None)


def _check_names(given: Mapping[str, Any]) -> None:
    unknown = sorted(set(given) - set(Settings.__struct_fields__))
    if unknown:
        raise InvalidArgument(
            f"no such setting: {', '.join(unknown)}; there are "
            f"{', '.join(Settings.__struct_fields__)}"
        )
