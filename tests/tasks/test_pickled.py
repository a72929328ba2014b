"""Pickled arguments and results: with both sides' consent alone, and msgpack wherever it can."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pytest

import weft
from tests.tasks import pickled
from tests.tasks.pickled import Recipe
from weft import limits, tasks
from weft.ids import MessageId
from weft.tasks import pickle_codec
from weft.tasks.call import PICKLED_TASK, TaskCall, decode_call
from weft.tasks.outcome import Outcome, PickledResult, TaskError, blocks_of, outcomes_in
from weft.tasks.sites.task_location import location_of
from weft.tasks.submission import SubmitOptions
from weft.tasks.testing import thread_worker, worker_process
from weft.tasks.worker_options import WorkerOptions
from weft.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 60
OPTIONS = SubmitOptions()


@pytest.fixture
def allowed() -> Iterator[None]:
    with pickled.app.inline(allow_pickle=True):
        yield


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The library is not installed."""
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    pickle_codec._library.cache_clear()
    pickle_codec._pickler.cache_clear()
    yield
    pickle_codec._library.cache_clear()
    pickle_codec._pickler.cache_clear()


#: The names of unpickled traps.
SEEN: list[str] = []


def spring(name: str) -> str:
    SEEN.append(name)
    return name


class Trap:
    """Notes in SEEN that it was unpickled."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        return spring, (self.name,)


# --- both sides ask ---


@pytest.mark.usefixtures("allowed")
def test_closures_and_classes_are_arguments_and_results() -> None:
    by = 7
    assert pickled.apply.submit(lambda x: x * by, 6).result() == 42
    assert [each.result() for each in pickled.apply.map([lambda: 1, lambda: by])] == [1, 7]
    assert pickled.renamed.submit(Recipe("tea"), "green").result() == Recipe("tea green")
    path = PurePosixPath("/a")
    found = pickled.below.submit(path, depth=2, test=lambda n: n > by).result()
    assert found == ["/a", "2", "False"]
    assert pickled.adder.submit(3).result()(4) == 7
    assert pickled.apply_async.submit(lambda x: -x, by).result() == -7
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    assert pickled.apply.submit(len, cyclic).result() == 1


@pytest.mark.usefixtures("allowed")
def test_results_of_a_graph_are_arguments() -> None:
    graph, by = pickled.app.graph(), -2
    first, second = graph.add(pickled.adder, 1), graph.add(pickled.adder, 2)
    total = graph.add(pickled.add_up, [first, 100, second, lambda n: n * by], value=10)
    last = graph.add(pickled.apply, first, total)
    graph.submit()
    assert total.result() == 11 + 100 + 12 - 20
    assert last.result() == 104


def test_values_of_msgpack_stay_msgpack() -> None:
    """A call without a pickled value has the same bytes as without the setting."""
    body = pickled.double.body((4,), {}, OPTIONS)
    assert msgspec.msgpack.decode(body) == ["double", [4], {}]
    assert pickled.double.bodies([4], {}, OPTIONS) == [body]
    mixed = pickled.below.body((PurePosixPath("/"),), {"depth": 3}, OPTIONS)
    name, args, words, *_, slots = msgspec.msgpack.decode(mixed)
    assert (name, words, slots[:2]) == (PICKLED_TASK, {"depth": 3}, ["below", [[0, -1]]])
    assert isinstance(args[0], bytes)
    assert decode_call(mixed).task == "below"


def test_an_older_version_misreads_neither_calls_nor_results() -> None:
    class OldCall(msgspec.Struct, array_like=True):
        name: str
        args: msgspec.Raw
        kwargs: msgspec.Raw = msgspec.Raw(b"\x80")
        options: Any = None
        graph: Any = None

    class OldBlock(msgspec.Struct, array_like=True):
        indexes: list[int]
        values: list[msgspec.Raw]
        failures: dict[int, TaskError] = {}
        large: dict[int, Any] = {}

    body = pickled.apply.body((len, [1]), {}, OPTIONS)
    assert msgspec.msgpack.decode(body, type=OldCall).name not in pickled.app.tasks
    value = msgspec.Raw(msgspec.msgpack.encode("plain"))
    rows: list[tuple[int, Outcome]] = [(3, PickledResult(b"data")), (4, value)]
    ((_, data),) = blocks_of(rows)
    assert outcomes_in(data) == dict(rows)
    old = msgspec.msgpack.decode(data, type=OldBlock)
    assert list(old.failures) == [3]
    assert "read it with a newer version" in old.failures[3].text
    # A block without pickled results is the same as before.
    ((_, plain),) = blocks_of([(4, value)])
    assert plain == msgspec.msgpack.encode([[4], [value], {}, {}])


@pytest.mark.usefixtures("allowed")
def test_a_graph_marks_its_calls_for_older_versions() -> None:
    graph = pickled.app.graph()
    first = graph.add(pickled.double, 1)
    graph.add(pickled.add_up, [first])
    bodies = [body for batch in graph.planned(1).batches for body in batch.bodies]
    calls = [msgspec.msgpack.decode(body, type=TaskCall) for body in bodies]
    names = [call.graph and call.graph.name for call in calls]
    assert names == ["double", PICKLED_TASK]
    assert [call.task for call in calls] == ["double", "add_up"]


# --- one side asks, or none ---


def test_a_worker_that_does_not_ask_unpickles_nothing() -> None:
    SEEN.clear()
    with pickled.app.inline():
        error = pickled.apply.submit(len, Trap("argument")).exception()
        assert error is not None
        assert "pickled arguments: use app.inline(allow_pickle=True)" in error.text
        result = pickled.adder.submit(1).exception()
        assert result is not None
        assert "must be pickled: use app.inline(allow_pickle=True)" in result.text
        assert pickled.double.submit(2).result() == 4
        assert pickled.add_up.submit([]).result() == 0
    assert SEEN == []
    with pickled.app.inline(allow_pickle=True):
        assert pickled.apply.submit(len, Trap("argument")).result() == len("argument")
    assert SEEN == ["argument"]


def test_a_submitter_that_does_not_ask_pickles_nothing() -> None:
    app = tasks.App("noask")

    @app.task
    def call(value: Any) -> Any:
        return lambda: value

    with app.inline(allow_pickle=True):
        with pytest.raises(weft.InvalidArgument, match="cannot be encoded as msgpack"):
            call.submit(len)
        with pytest.raises(weft.TaskFailed, match="result of task call cannot be encoded"):
            call.submit(1).result()
    with pytest.raises(weft.InvalidArgument, match="msgpack cannot carry"):

        @app.task
        def never(recipe: Recipe) -> None: ...


def test_bytes_are_unpickled_only_where_the_call_says_so() -> None:
    """A byte string is data, even if it is a pickle, and even beside a pickled argument."""
    SEEN.clear()
    data = pickle_codec.pickle_value(Trap("bytes"), "a value", limits.MIB)
    with pickled.app.inline(allow_pickle=True):
        assert pickled.apply.submit(lambda value: value, data).result() == data
    assert SEEN == []


# --- refused values ---


@pytest.mark.usefixtures("allowed")
def test_exceptions_and_locks_are_not_pickled() -> None:
    for value in (ValueError("x"), {"inner": (ValueError("x"), {1})}):
        with pytest.raises(weft.InvalidArgument, match="ValueError\\) is never pickled: pass its"):
            pickled.apply.submit(len, [value, len])
    with pytest.raises(weft.InvalidArgument, match="by neither msgpack nor pickle"):
        pickled.apply.submit(len, threading.Lock())
    with pytest.raises(weft.TaskFailed, match="result of task lock"):
        pickled.lock.submit().result()
    with pytest.raises(weft.TaskFailed, match="never pickled"):
        pickled.failure.submit().result()


@pytest.mark.usefixtures("allowed")
def test_types_are_checked_before_the_submission() -> None:
    with pytest.raises(weft.InvalidArgument, match=r"argument 'recipe': expected .*Recipe"):
        pickled.renamed.submit(len, "x")
    with pytest.raises(weft.InvalidArgument, match="argument 'name'"):
        pickled.renamed.submit(Recipe("a"), len)
    with pytest.raises(weft.InvalidArgument, match=r"item 1: .*argument 'n'"):
        pickled.double.map([1, len])
    with pytest.raises(weft.InvalidArgument, match="argument 'n'"):
        pickled.double.map([1, "2"])


@pytest.mark.usefixtures("allowed")
def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(weft.TooLarge, match=r"argument 'values' has .* bytes pickled, at most"):
        pickled.apply.submit(len, {bytes(limits.BODY_BYTES_MAX): len})
    half = {bytes(limits.BODY_BYTES_MAX * 2 // 3): len}
    with pytest.raises(weft.TooLarge, match=r"the call has .* bytes, at most"):
        pickled.apply.submit(len, half, half)
    monkeypatch.setattr("weft.tasks.pickled_result.RESULT_BYTES_MAX", limits.MIB)
    assert pickled.of_size.submit(limits.MIB // 2).result() is not None
    with pytest.raises(weft.TaskFailed, match="TooLarge: the result of task of_size has"):
        pickled.of_size.submit(limits.MIB).result()


@pytest.mark.usefixtures("allowed")
def test_values_that_do_not_unpickle_fail_at_once() -> None:
    call = decode_call(pickled.apply.body((len, [1]), {}, OPTIONS))
    assert call.pickled is not None
    broken = msgspec.msgpack.encode([b"no pickle", [1]])
    body = msgspec.msgpack.encode(
        [call.name, msgspec.Raw(broken), {}, call.options, None, ["apply", [[0, -1]], "3.1"]]
    )
    runner = pickled.app.inline_runner
    assert runner is not None
    with pytest.raises(weft.TaskFailed, match=r"'function' cannot be unpickled.*Python 3\.1, this"):
        runner.run(body).result()


def test_a_schedule_has_no_pickled_arguments() -> None:
    with pytest.raises(weft.InvalidArgument, match="cannot be encoded as msgpack"):
        pickled.app.schedule("never", pickled.apply, cron="0 2 * * *", args=[len])


# --- without the library ---


@pytest.mark.usefixtures("missing")
def test_the_missing_library_is_named() -> None:
    with pytest.raises(weft.MissingExtra, match=r"pip install 'weft\[pickle\]'"):
        pickled.apply.submit(len, [1])
    with pytest.raises(weft.MissingExtra, match=r"pip install 'weft\[pickle\]'"):
        WorkerOptions(allow_pickle=True)
    with pickled.app.inline(allow_pickle=True):
        assert pickled.double.submit(4).result() == 8
        with pytest.raises(weft.TaskFailed, match=r"MissingExtra: .*weft\[pickle\]"):
            pickled.adder.submit(1).result()


# --- real workers ---


def test_processes_run_pickled_calls(node: Cluster) -> None:
    pickled.app.connect(node.servers)
    pickled.plain.connect(node.servers)
    by = 3
    arguments = ("tests.tasks.pickled:app", node.servers, "-q", "default", "--allow-pickle")
    with worker_process(*arguments, folder=ROOT) as worker:
        worker.logged("takes", TIMEOUT_S)
        worker.logged("can run any code in this worker", TIMEOUT_S)
        future = pickled.apply.submit(lambda x: x * by, 5)
        assert future.result(TIMEOUT_S) == 15
        made = pickled.adder.submit(2)
        large = pickled.of_size.submit(2 * limits.MIB)
        functions = pickled.apply.map([lambda n=n: n * by for n in range(20)])
        assert tasks.gather(functions, timeout=TIMEOUT_S) == [3 * n for n in range(20)]
        assert made.result(TIMEOUT_S)(1) == 3
        assert large.result(TIMEOUT_S) == (len, bytes(2 * limits.MIB))
        for each in (made, large):  # a client that did not ask
            with pytest.raises(weft.UsageError, match=r"App\('pickled', pickle=True\)"):
                pickled.plain.future(each.id).result(TIMEOUT_S)
        graph = pickled.app.graph()
        parts = [graph.add(pickled.adder, n) for n in (1, 2)]
        total = graph.add(pickled.add_up, [*parts, graph.add(pickled.double, 50)])
        graph.add(pickled.apply, lambda n: n + by, total)
        assert graph.submit().result(TIMEOUT_S) == 2 + 3 + 100 + 3


def test_a_refused_call_is_kept_and_runs_after_a_retry(node: Cluster) -> None:
    """A worker without the option fails the task, which an operator retries on another worker."""
    app = tasks.App("kept", pickle=True)

    @app.task
    def call(function: Any) -> Any:
        return function()

    with thread_worker(app, node.servers):
        future = call.submit(lambda: 5)
        with pytest.raises(weft.TaskFailed, match="was started without --allow-pickle"):
            future.result(TIMEOUT_S)
    with thread_worker(app, node.servers, allow_pickle=True):
        assert app.retry(future.id).result(TIMEOUT_S) == 5
    assert not app.pickle_allowed


async def test_event_loops_run_pickled_calls(node: Cluster) -> None:
    app = tasks.App("looped", pickle=True)

    @app.task
    async def call(function: Any, value: Any) -> Any:
        return function, value

    with thread_worker(app, node.servers, allow_pickle=True):
        futures = await call.aio.map([len, max], value=(2, print))
        results = [await each.result(TIMEOUT_S) for each in futures]
        await app.aio_close()
    assert results == [(len, (2, print)), (max, (2, print))]


def test_the_reply_queue_says_that_the_result_is_pickled(node: Cluster) -> None:
    app = tasks.App("replied", pickle=True)

    @app.task
    def call() -> Any:
        return len

    with weft.connect(node.servers) as client, thread_worker(app, node.servers, allow_pickle=True):
        client.create_queue("pickled-replies")
        future = call.with_options(reply_to="pickled-replies").submit()
        message = client.queue("pickled-replies").pop(wait_ms=TIMEOUT_S * 1000)
        assert message is not None
        assert (message.headers["status"], message.body) == ("pickled", b"\xc0")
        assert MessageId.parse(future.id) == MessageId.parse(message.headers["task"])
        assert future.result(TIMEOUT_S) is len
        message.ack()


def test_the_site_of_a_call_is_found_without_unpickling() -> None:
    app = tasks.App("sited", pickle=True)

    @app.task(near="site")
    def call(function: Any, site: str) -> None: ...

    SEEN.clear()
    decoded = decode_call(call.body((Trap("placed"), "rack-7"), {}, OPTIONS))
    assert location_of(call, decoded) == "rack-7"
    assert SEEN == []


def test_the_library_is_imported_by_the_first_pickled_value() -> None:
    program = (
        "import sys; from tests.tasks import pickled; from weft.tasks.submission import "
        "SubmitOptions as Options; pickled.double.body((1,), {}, Options()); "
        "assert 'cloudpickle' not in sys.modules; pickled.apply.body((lambda: 1,), {}, Options()); "
        "assert 'cloudpickle' in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=TIMEOUT_S, check=False)
    assert ran.returncode == 0
