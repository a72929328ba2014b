"""Operations that create, change, list and delete queues, and queries about the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

from weft import limits
from weft.client import arguments
from weft.client.pipeline.subscription import SubscriptionStats
from weft.client.routing.router import ANY
from weft.client.routing.session import ClientSession
from weft.client.stats import QueueStats
from weft.errors import InvalidArgument, QueueExists, QueueNotFound
from weft.proto import pipelines, wire
from weft.proto.settings import Settings

#: Queues in one answer; a longer list takes several requests.
PAGE: Final = 1000

_DEFAULTS: Final = Settings()


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Returns the settings of a new queue; missing values get their defaults."""
    _check_given(given)
    settings = Settings(**given)
    settings.check()
    return settings


class QueueSettings(TypedDict, total=False):
    """Keyword arguments of `create_queue`, `update_queue`; see `weft.proto.settings.Settings`."""

    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    ordered: bool


class AdminCore:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def create_queue(
        self, name: str, settings: Mapping[str, Any], *, update: bool = False
    ) -> bool:
        arguments.check_queue_name("name", name)
        arguments.check_flag("update", update)
        request = wire.CreateQueue(name, make_settings(settings))
        while True:
            try:
                return (await self._session.ask(ANY, request, wire.Created, None)).created
            except QueueExists:
                if not update:
                    raise
            try:
                if settings:
                    await self.update_queue(name, settings)
                return False
            except QueueNotFound:
                continue  # deleted between the two requests

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        arguments.check_queue_name("name", name)
        _check_given(changes)
        if not changes:
            raise InvalidArgument("update_queue wants at least one setting to change")
        request = wire.UpdateQueue(name, dict(changes))
        await self._session.ask(ANY, request, wire.Done, None)

    async def delete_queue(self, name: str) -> int:
        arguments.check_queue_name("name", name)
        return (await self._session.ask(ANY, wire.DeleteQueue(name), wire.Done, None)).count

    async def list_queues(self, prefix: str) -> list[QueueStats]:
        arguments.check_text("prefix", prefix, 0, limits.KIB)
        found: list[QueueStats] = []
        more = True
        while more:
            request = wire.ListQueues(prefix, found[-1].name if found else "", PAGE)
            page = await self._session.ask(ANY, request, wire.Queues, None)
            found += map(QueueStats.of, page.queues)
            more = page.more and bool(page.queues)
        return found

    async def settings_of(self, names: Iterable[str] | None) -> dict[str, Settings]:
        """Returns the settings of the existing queues among `names`; None for all queues.

        A token without the right to list may still query its own queues.
        """
        if names is None:
            return {info.name: info.settings for info in await self.list_queues("")}
        found: dict[str, Settings] = {}
        for name in names:
            arguments.check_queue_name("name", name)
            try:
                answer = await self._session.ask(ANY, wire.DescribeQueue(name), wire.Queues, None)
            except QueueNotFound:
                continue
            found[name] = answer.queues[0].settings
        return found

    async def delete_subscription(self, queue: str, name: str) -> int:
        arguments.check_queue_name("queue", queue)
        arguments.check_queue_name("name", name)
        request = pipelines.DeleteSubscription(queue, name)
        return (await self._session.ask(ANY, request, wire.Done, None)).count

    async def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        arguments.check_queue_name("queue", queue)
        request = pipelines.ListSubscriptions(queue)
        found = await self._session.ask(ANY, request, pipelines.Subscriptions, None)
        return list(map(SubscriptionStats.of, found.subscriptions))

    async def view(self) -> wire.ViewInfo:
        return await self._session.ask(ANY, wire.GetView(), wire.ViewInfo, None)

    async def status(self) -> wire.StatusInfo:
        return await self._session.ask(ANY, wire.Status(), wire.StatusInfo, None)


def _check_given(given: Mapping[str, Any]) -> None:
    """Checks names and types; `Settings.check` checks the values."""
    unknown = sorted(set(given) - set(Settings.__struct_fields__))
    if unknown:
        raise InvalidArgument(
            f"no such setting: {', '.join(unknown)}; there are "
            f"{', '.join(Settings.__struct_fields__)}"
        )
    for name, value in given.items():
        default = getattr(_DEFAULTS, name)
        if isinstance(default, bool):
            arguments.check_flag(name, value)
        elif isinstance(default, int):
            arguments.check_integer(name, value, 0, limits.NUMBER_MAX)
        else:
            arguments.check_text(name, value, 0, limits.KIB)
