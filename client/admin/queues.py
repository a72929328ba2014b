"""Operations that create, change, list and delete queues, and queries about the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

from weft import limits
from weft.client import arguments
from weft.client.pipeline.subscription import SubscriptionStats
from weft.client.routing.session import ClientSession
from weft.client.stats import QueueStats
from weft.errors import InvalidArgument, QueueExists, QueueNotFound
from weft.proto import pipelines, wire
from weft.proto.settings import (
    SHARE_WHOLE,
    STOCHASTIC,
    STOCHASTIC_DEFAULTS,
    Settings,
    share_per_mille,
)

#: Queues in one answer; a longer list takes several requests.
PAGE: Final = 1000

_DEFAULTS: Final = Settings()


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Returns the settings of a new queue; missing values get their defaults."""
    checked = _checked(given)
    if checked.get("kind") == STOCHASTIC:
        checked = {**STOCHASTIC_DEFAULTS, **checked}
    settings = Settings(**checked)
    settings.check()
    return settings


def stored_settings(stored: Mapping[str, Any]) -> Settings:
    """Returns the settings from a backup, which has them as stored."""
    share = stored.get("share", 0)
    arguments.check_integer("share", share, 0, SHARE_WHOLE)
    return make_settings({**stored, "share": share / SHARE_WHOLE})


class QueueSettings(TypedDict, total=False):
    """Keyword arguments of `create_queue`, `update_queue`; see `weft.proto.settings.Settings`."""

    lease_ms: int
    max_deliveries: int
    dead_letter: str
    retention_ms: int
    dedup_window_ms: int
    max_messages: int
    ordered: bool
    grouped: bool
    keep_leases: bool
    kind: str
    buffers: int
    max_hops: int
    access: str
    expire_idle_ms: int
    share: float
    rate_limit: int
    max_in_flight: int
    graphs: bool


class AdminCore:
    def __init__(self, session: ClientSession) -> None:
        self._session = session

    async def create_queue(
        self, name: str, settings: Mapping[str, Any], *, update: bool = False
    ) -> bool:
        arguments.check_queue_name("name", name)
        arguments.check_flag("update", update)
        request = wire.create_request(name, make_settings(settings))
        while True:
            try:
                return (await self._session.ask(request, wire.Created, None)).created
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
        checked = _checked(changes)
        if not checked:
            raise InvalidArgument("update_queue wants at least one setting to change")
        request = wire.UpdateQueue(name, checked)
        await self._session.ask(request, wire.Done, None)

    async def delete_queue(self, name: str) -> int:
        arguments.check_queue_name("name", name)
        return (await self._session.ask(wire.DeleteQueue(name), wire.Done, None)).count

    async def list_queues(self, prefix: str) -> list[QueueStats]:
        arguments.check_text("prefix", prefix, 0, limits.KIB)
        found: list[QueueStats] = []
        more = True
        while more:
            request = wire.ListQueues(prefix, found[-1].name if found else "", PAGE)
            page = await self._session.ask(request, wire.Queues, None)
            found += map(QueueStats.of, page.queues)
            more = page.more and bool(page.queues)
        return found

    async def create_topic(self, name: str) -> bool:
        arguments.check_queue_name("name", name)
        return (await self._session.ask(wire.CreateTopic(name), wire.Created, None)).created

    async def delete_topic(self, name: str) -> None:
        arguments.check_queue_name("name", name)
        await self._session.ask(wire.DeleteTopic(name), wire.Done, None)

    async def bind(
        self,
        topic: str,
        queue: str,
        headers: Mapping[str, str] | None,
        prefixes: Mapping[str, str] | None,
    ) -> bool:
        arguments.check_queue_name("topic", topic)
        arguments.check_queue_name("queue", queue)
        exact, begin = check_filter("headers", headers), check_filter("prefixes", prefixes)
        request = wire.Bind(topic, queue, exact, begin)
        return (await self._session.ask(request, wire.Created, None)).created

    async def unbind(self, topic: str, queue: str) -> bool:
        arguments.check_queue_name("topic", topic)
        arguments.check_queue_name("queue", queue)
        return (await self._session.ask(wire.Unbind(topic, queue), wire.Done, None)).count > 0

    async def list_topics(self, prefix: str) -> list[wire.TopicInfo]:
        arguments.check_text("prefix", prefix, 0, limits.KIB)
        found: list[wire.TopicInfo] = []
        more = True
        while more:
            request = wire.ListTopics(prefix, found[-1].name if found else "", PAGE)
            page = await self._session.ask(request, wire.Topics, None)
            found += page.topics
            more = page.more and bool(page.topics)
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
                answer = await self._session.ask(wire.DescribeQueue(name), wire.Queues, None)
            except QueueNotFound:
                continue
            found[name] = answer.queues[0].settings
        return found

    async def delete_subscription(self, queue: str, name: str) -> int:
        arguments.check_queue_name("queue", queue)
        arguments.check_queue_name("name", name)
        request = pipelines.DeleteSubscription(queue, name)
        return (await self._session.ask(request, wire.Done, None)).count

    async def list_subscriptions(self, queue: str) -> list[SubscriptionStats]:
        arguments.check_queue_name("queue", queue)
        request = pipelines.ListSubscriptions(queue)
        found = await self._session.ask(request, pipelines.Subscriptions, None)
        return list(map(SubscriptionStats.of, found.subscriptions))

    async def view(self) -> wire.ViewInfo:
        return await self._session.ask(wire.GetView(), wire.ViewInfo, None)

    async def status(self) -> wire.StatusInfo:
        return await self._session.ask(wire.Status(), wire.StatusInfo, None)


def check_filter(name: str, wanted: Mapping[str, str] | None) -> dict[str, str]:
    """Checks header names and the values that a binding wants."""
    if wanted is not None and not isinstance(wanted, Mapping):
        raise arguments.wrong_type(name, "a mapping of text to text", wanted)
    for header, value in (wanted or {}).items():
        arguments.check_text(f"each name of {name}", header, 1, limits.FILTER_BYTES_MAX)
        arguments.check_text(f"each value of {name}", value, 0, limits.FILTER_BYTES_MAX)
    return dict(wanted or {})


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Checks names and types, and returns the settings as stored; `Settings.check` checks the
    values."""
    checked = dict(given)
    unknown = sorted(set(given) - set(Settings.__struct_fields__))
    if unknown:
        raise InvalidArgument(
            f"unknown setting: {', '.join(unknown)}; the settings are "
            f"{', '.join(Settings.__struct_fields__)}"
        )
    for name, value in given.items():
        default = getattr(_DEFAULTS, name)
        if name == "share":
            arguments.check_number(name, value, 0, 1)
            checked[name] = share_per_mille(value)
        elif isinstance(default, bool):
            arguments.check_flag(name, value)
        elif isinstance(default, int):
            arguments.check_integer(name, value, 0, limits.NUMBER_MAX)
        else:
            arguments.check_text(name, value, 0, limits.KIB)
    return checked
