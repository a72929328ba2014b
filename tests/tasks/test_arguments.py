"""Arguments and results: typed by the signature, refused where they cannot be right."""

from __future__ import annotations

import datetime
import enum
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import weft
from tests.tasks.shop import Order
from weft import tasks
from weft.tasks.call import decode_call
from weft.tasks.outcome import BLOCK_BYTES_MAX, TaskError, blocks_of, outcomes_in
from weft.tasks.signature import TaskSignature


class Colour(enum.Enum):
    RED = "red"


def sample(
    a: int, b: str = "b", *rest: datetime.date, flag: bool = False, **more: float
) -> list[int]:
    return []


def round_trip(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
    signature = TaskSignature("sample", function)
    values, words = signature.unpack(*signature.pack(args, kwargs))
    return tuple(values), words


def test_arguments_arrive_as_the_signature_types_them() -> None:
    day = datetime.date(2026, 3, 1)
    assert round_trip(sample, 1) == ((1,), {})
    assert round_trip(sample, 1, "x", day, day, flag=True, c=2.5) == (
        (1, "x", day, day),
        {"flag": True, "c": 2.5},
    )
    assert round_trip(sample, b="y", a=3) == ((3, "y"), {})

    def typed(order: Order, key: uuid.UUID, colours: set[Colour], when: datetime.datetime) -> None:
        """Never called."""

    given = (Order(1, day), uuid.uuid4(), {Colour.RED}, datetime.datetime.now(datetime.UTC))
    assert round_trip(typed, *given)[0] == given


def test_sixteen_arguments_and_more() -> None:
    def many(*values: int) -> int:
        return sum(values)

    for count in (15, 16, 300):
        assert round_trip(many, *range(count))[0] == tuple(range(count))


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "missing a required argument: 'a'"),
        (("1",), {}, "argument 'a': Expected `int`, got `str`"),
        ((1, 2), {}, "argument 'b': Expected `str`"),
        ((1, "b", "no day"), {}, "argument 'rest'"),
        ((1,), {"flag": "yes"}, "argument 'flag'"),
        ((1,), {"other": "x"}, "argument 'other': Expected `float`"),
        ((1 << 70,), {}, "cannot be encoded"),
        ((object(),), {}, r"\(object\) cannot be encoded"),
    ],
)
def test_wrong_arguments_are_refused_by_name(args: Any, kwargs: Any, says: str) -> None:
    with pytest.raises(weft.InvalidArgument, match=says):
        round_trip(sample, *args, **kwargs)


def test_map_checks_every_value_before_anything_is_sent() -> None:
    app = tasks.App("unused", "127.0.0.1:1")  # no node: a push would fail

    @app.task
    def scale(n: int, by: int = 2, *, deep: bool = False) -> int:
        return n * by

    with pytest.raises(weft.InvalidArgument, match="argument 'n', item 2"):
        scale.map([1, 2, "3", 4])
    with pytest.raises(weft.InvalidArgument, match="argument 'by'"):
        scale.map([1, 2], by="x")
    with pytest.raises(weft.InvalidArgument, match=r"item 1 \(object\) cannot be encoded"):
        scale.map([1, object()])
    with pytest.raises(weft.InvalidArgument, match="must be an iterable"):
        scale.map(5)  # type: ignore[arg-type]
    head, tail, words = scale.signature.pack_around(7, {"by": 3, "deep": True})
    column = scale.signature.pack_column([7, 8], head, tail)
    assert [scale.signature.unpack(each, words) for each in column] == [
        ((7, 3), {"deep": True}),
        ((8, 3), {"deep": True}),
    ]


def test_a_type_that_msgpack_cannot_carry_is_refused_at_registration() -> None:
    app = tasks.App("unused")

    def takes(client: weft.Client) -> None: ...

    def returns() -> list[weft.Client]:
        return []

    with pytest.raises(weft.InvalidArgument, match="argument 'client' has the type Client"):
        app.task(takes)
    with pytest.raises(weft.InvalidArgument, match="the result has the type Client"):
        app.task(returns)
    assert app.tasks == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"once": "twice"}, "once must be one of effects, start, none"),
        ({"attempts": 0}, "attempts must be 1"),
        ({"once": "start", "attempts": 2}, "starts at most once"),
        ({"time_limit": -1}, "time_limit must be"),
        ({"soft_time_limit": "1"}, "soft_time_limit must be a number"),
        ({"result_ttl": 0}, "result_ttl must be"),
        ({"backoff": 5}, "backoff must be a function"),
        ({"queue": "a b"}, "queue"),
        ({"name": ""}, "name must have"),
    ],
)
def test_wrong_task_options_are_refused(options: dict[str, Any], says: str) -> None:
    app = tasks.App("unused")
    with pytest.raises(weft.InvalidArgument, match=says):
        app.task(**options)(sample)


def test_names() -> None:
    app = tasks.App("unused")
    app.task(sample)
    with pytest.raises(weft.InvalidArgument, match="has a task 'sample' already"):
        app.task(sample)
    assert app.task(name="other")(sample).name == "other"
    for name in ("", "a b", "x" * 41, 5):
        with pytest.raises(weft.InvalidArgument, match="name"):
            tasks.App(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"delay": -1}, "delay must be"),
        ({"delay": 1, "at": datetime.datetime.now(datetime.UTC)}, "exclude each other"),
        ({"at": datetime.datetime(2026, 1, 1)}, "time zone"),
        ({"at": "tomorrow"}, "at must be a datetime"),
        ({"priority": 10}, "priority must be 0 to 9"),
        ({"key": ""}, "key must have"),
        ({"reply_to": "a b"}, "reply_to"),
    ],
)
def test_wrong_submit_options_are_refused(options: dict[str, Any], says: str) -> None:
    app = tasks.App("unused")
    with pytest.raises(weft.InvalidArgument, match=says):
        app.task(sample).with_options(**options)


def test_a_body_is_three_parts_and_options_only_if_given() -> None:
    app = tasks.App("unused")
    task = app.task(sample)
    plain = task.with_options()
    call = decode_call(task.body((1,), {}, plain._options))
    assert (call.name, call.options.reply_to) == ("sample", "")
    reply = task.with_options(reply_to="answers")
    assert decode_call(task.body((1,), {}, reply._options)).options.reply_to == "answers"
    with pytest.raises(weft.InvalidArgument, match="no task"):
        decode_call(b"hello")


def test_blocks_hold_values_failures_and_split_by_size() -> None:
    error = TaskError("TASK_FAILED", "ValueError", "no")
    value = msgspec.Raw(b"\x01")
    ((first, data),) = blocks_of([(4, value), (2, error), (9, value)])
    assert first == 2
    assert outcomes_in(data) == {4: value, 2: error, 9: value}
    large = msgspec.Raw(msgspec.msgpack.encode(b"x" * (BLOCK_BYTES_MAX // 2)))
    blocks = blocks_of([(index, large) for index in range(5)])
    assert [first for first, _ in blocks] == [0, 1, 2, 3, 4]
    assert {index for _, data in blocks for index in outcomes_in(data)} == set(range(5))
