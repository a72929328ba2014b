"""Authorization: the table of verbs, patterns, and the token file."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from weft.client.cli.main import cli
from weft.errors import InvalidArgument, PermissionDenied, Unauthenticated
from weft.proto import pipelines, wire
from weft.proto.settings import Settings
from weft.proto.verbs import INTERNAL
from weft.server.security import access, token_file
from weft.server.security.access import PERMISSIONS, Access, Grant, Principal, allow
from weft.server.security.token_command import expiry
from weft.server.security.token_file import TokenFile

VERBS: tuple[type, ...] = get_args(wire.AnyRequest)
PUSH = (
    wire.Push, pipelines.StageBatch, pipelines.CloseStage, pipelines.Publish, pipelines.Abort,
    pipelines.LastPublished,
)  # fmt: skip
CONSUME = (
    wire.Pop, wire.Peek, wire.Ack, wire.Nack, wire.Extend, wire.Cancel,
    pipelines.OpenSubscription, pipelines.Reserve, pipelines.DescribeReservation,
    pipelines.ReadReserved, pipelines.AckThrough, pipelines.Heartbeat,
)  # fmt: skip
ADMIN = (
    wire.CreateQueue, wire.UpdateQueue, wire.DeleteQueue, wire.PurgeQueue, wire.Redrive,
    wire.Snapshot, wire.Restore, pipelines.ReleaseAll, pipelines.DeleteSubscription,
)  # fmt: skip
#: Requests between nodes only.
INNER = INTERNAL
TABLE = (wire.Insert, wire.Lookup, wire.Remove, wire.Append, wire.CompareAndSwap)


def who(*grants: str) -> Principal:
    return Principal("somebody", tuple(map(Grant.parse, grants)))


def allowed(principal: Principal, name: str) -> set[type]:
    return {verb for verb in VERBS if allow(principal, verb, name)}


FOR_ALL = {wire.GetView, wire.Status, wire.ClusterStatus, wire.StopWaiting}
ABOUT = {
    wire.DescribeQueue, wire.Where, pipelines.DescribeSubscription, pipelines.ListSubscriptions,
}  # fmt: skip


@pytest.mark.parametrize(
    ("grant", "verbs"),
    [
        ("push:orders", {*PUSH} | ABOUT),
        ("consume:orders", {*CONSUME} | ABOUT),
        ("admin:orders", {*ADMIN} | ABOUT),
        ("watch:orders", ABOUT),
        ("table:orders", {*TABLE}),
        ("admin:*", {*ADMIN, wire.ListQueues, wire.Join, wire.Leave, wire.Recover} | ABOUT),
        ("watch:*", {wire.ListQueues} | ABOUT),
    ],
)
def test_a_grant_lets_this_and_no_more(grant: str, verbs: set[type]) -> None:
    assert allowed(who(grant), "orders") == verbs | FOR_ALL


def test_only_a_consumer_says_that_a_node_has_nothing_left() -> None:
    class Known:
        def __init__(self, *grants: str) -> None:
            self._known = who(*grants)

        def principal(self, token: str) -> Principal:
            return self._known

    asks, tells = wire.Where("orders"), wire.Where("orders", 0, {"a": (1, 1)})
    Access(Known("push:orders")).check("t", asks)
    with pytest.raises(PermissionDenied):
        Access(Known("push:orders")).check("t", tells)
    Access(Known("consume:orders")).check("t", tells)


def test_without_a_grant_only_the_cluster_is_seen() -> None:
    assert allowed(who(), "orders") == FOR_ALL


@pytest.mark.parametrize("permission", PERMISSIONS)
def test_another_queue_is_another_queue(permission: str) -> None:
    assert allowed(who(f"{permission}:orders"), "orders2") == FOR_ALL


def test_an_unknown_verb_is_denied() -> None:
    everything = who(*(f"{permission}:*" for permission in PERMISSIONS))
    assert allowed(everything, "q") == set(VERBS) - INNER
    assert not allow(everything, type("Unheard", (wire.Request,), {}), "q")


@pytest.mark.parametrize(
    ("pattern", "names", "not_names"),
    [
        ("orders", ["orders"], ["Orders", "orders.eu", "order", ""]),
        ("orders.*", ["orders.", "orders.eu", "orders.eu.1"], ["orders", "xorders.eu"]),
        ("*.dead", ["a.dead", ".dead"], ["a.dead2"]),
        ("a*c", ["ac", "abc", "axxc"], ["ab", "acb"]),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_patterns(pattern: str, names: list[str], not_names: list[str]) -> None:
    grant = Grant("push", pattern)
    assert all(map(grant.names, names))
    assert not any(map(grant.names, not_names))


@pytest.mark.parametrize(
    ("pattern", "prefix", "covers"),
    [("*", "", True), ("a.*", "a.", True), ("a.*", "a.b", True), ("a.*", "", False),
     ("a.*", "a", False), ("a", "a", False), ("*x", "a", False)],
)  # fmt: skip
def test_a_list_is_for_who_may_see_all_of_it(pattern: str, prefix: str, covers: bool) -> None:
    assert allow(who(f"watch:{pattern}"), wire.ListQueues, prefix) is covers


@given(st.text(max_size=30))
def test_a_grant_is_read_or_refused(text: str) -> None:
    try:
        grant = Grant.parse(text)
    except InvalidArgument:
        return
    assert str(grant) == text


@pytest.mark.parametrize("wrong", ["push", "push:", "read:x", "push:a b", "push:[a]", "push:?"])
def test_a_wrong_grant_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match="PERMISSION:PATTERN"):
        Grant.parse(wrong)


class Fixed:
    def __init__(self, *grants: str) -> None:
        self._principal = who(*grants)

    def become(self, *grants: str) -> None:
        self._principal = who(*grants)

    def principal(self, token: str) -> Principal | None:
        return self._principal if token == "good" else None


def test_no_token_and_a_wrong_one_are_told_apart_from_a_weak_one() -> None:
    door = Access(Fixed("push:orders"))
    door.check("good", wire.Push("orders", 1, 1, 1))
    for token in ("", "bad"):
        with pytest.raises(Unauthenticated):
            door.check(token, wire.GetView())
    with pytest.raises(PermissionDenied, match="somebody may not Pop 'orders'"):
        door.check("good", wire.Pop("orders", 1))


def test_what_was_allowed_is_asked_for_once_and_nothing_else_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[type, str]] = []

    def counted(principal: Principal, verb: type, name: str) -> bool:
        asked.append((verb, name))
        return allow(principal, verb, name)

    monkeypatch.setattr(access, "allow", counted)
    door = Access(Fixed("push:orders", "consume:orders"))
    for _ in range(3):
        door.check("good", wire.Push("orders", 1, 1, 1))
        door.check("good", wire.Pop("orders", 1))
    assert asked == [(wire.Push, "orders"), (wire.Pop, "orders")]
    for _ in range(2):  # refusals are not cached; a grant covers no other queue or verb
        for request in (wire.Push("others", 1, 1, 1), wire.PurgeQueue("orders")):
            with pytest.raises(PermissionDenied):
                door.check("good", request)
    with pytest.raises(Unauthenticated):
        door.check("bad", wire.Push("orders", 1, 1, 1))


def test_other_grants_count_at_once() -> None:
    fixed = Fixed("push:orders")
    door = Access(fixed)
    door.check("good", wire.Push("orders", 1, 1, 1))
    fixed.become("push:others")
    with pytest.raises(PermissionDenied):
        door.check("good", wire.Push("orders", 1, 1, 1))
    door.check("good", wire.Push("others", 1, 1, 1))


def test_what_is_remembered_is_bounded() -> None:
    door = Access(Fixed("push:*"))
    for number in range(2 * access.ALLOWED_MAX + 10):
        door.check("good", wire.Push(f"q{number}", 1, 1, 1))
        assert len(door._allowed) <= access.ALLOWED_MAX


def test_a_dead_letter_queue_is_written_to_so_it_must_be_allowed() -> None:
    door = Access(Fixed("admin:mine.*"))
    door.check("good", wire.CreateQueue("mine.a", Settings(dead_letter="mine.dead")))
    for request in (
        wire.CreateQueue("mine.a", Settings(dead_letter="theirs")),
        wire.UpdateQueue("mine.a", {"dead_letter": "theirs"}),
    ):
        with pytest.raises(PermissionDenied, match="theirs"):
            door.check("good", request)


def test_figures_are_for_watchers() -> None:
    Access(Fixed("watch:*")).check_figures("good")
    with pytest.raises(PermissionDenied, match="watch"):
        Access(Fixed("push:*")).check_figures("good")


# --- the file ---------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def make(file: Path, name: str = "shop", grants: tuple[str, ...] = ("push:*",)) -> str:
    return token_file.create(file, name, list(grants), 0)[1]


def test_a_token_is_known_and_its_neighbours_are_not(file: Path) -> None:
    token = make(file)
    other = make(file, "other", ("consume:a",))
    found = TokenFile(str(file))
    assert found.principal(token) == Principal("shop", (Grant("push", "*"),))
    prefix, ident, secret = token.split("_", 2)
    for wrong in (
        "", "weft", token[:-1], token + "x", secret, f"{prefix}_{ident}_", "x" * 10_000,
        f"{prefix}_{other.split('_')[1]}_{secret}", f"{prefix.upper()}_{ident}_{secret}",
        f"{prefix}_{ident}_{secret}".replace("_", "-"), "weft__", "é_é_é",
    ):  # fmt: skip
        assert found.principal(wrong) is None, wrong


def test_the_secret_is_not_in_the_file_and_the_file_is_its_owners(file: Path) -> None:
    secret = make(file).split("_", 2)[2]
    assert secret not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_token_expires(file: Path) -> None:
    _, token = token_file.create(file, "shop", ["push:*"], 1000)
    now = [999.0]
    found = TokenFile(str(file), lambda: now[0])
    assert found.principal(token)
    assert found.principal(token)  # cached
    now[0] = 1000.0
    assert found.principal(token) is None


def test_a_running_node_sees_changes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_file, "LOOK_S", 0.0)
    first = make(file)
    found = TokenFile(str(file))
    assert found.principal(first) is found.principal(first)
    second = make(file, "second")
    assert found.principal(second)
    assert found.principal(first)  # cached when revoked
    token_file.revoke(file, "shop")
    assert found.principal(first) is None
    assert found.principal(second)


def test_what_was_allowed_ends_with_its_token(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_file, "LOOK_S", 0.0)
    now = [999.0]
    _, passing = token_file.create(file, "passing", ["push:*"], 1000)
    lasting = make(file)
    door = Access(TokenFile(str(file), lambda: now[0]))
    push = wire.Push("orders", 1, 1, 1)
    for token in (passing, lasting, passing, lasting):  # decided, then cached
        door.check(token, push)
    now[0] = 1000.0
    with pytest.raises(Unauthenticated):
        door.check(passing, push)
    door.check(lasting, push)
    token_file.revoke(file, "shop")
    with pytest.raises(Unauthenticated):
        door.check(lasting, push)
    other = make(file, grants=("push:others",))  # the same name, with fewer grants
    with pytest.raises(PermissionDenied):
        door.check(other, push)


def test_the_file_is_looked_at_once_in_a_while(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Path] = []
    stamp = token_file._stamp

    def counted(path: Path) -> tuple[int, int, int]:
        looks.append(path)
        return stamp(path)

    monkeypatch.setattr(token_file, "_stamp", counted)
    monkeypatch.setattr(token_file, "LOOK_S", 1000.0)
    token = make(file)
    found = TokenFile(str(file))
    for _ in range(10):
        assert found.principal(token)
    assert len(looks) == 1
    found._look_at = 0.0  # the file is due for a check
    for _ in range(10):
        assert found.principal(token)
    assert len(looks) == 2


@pytest.mark.parametrize("broken", ["", "{", '{"tokens": [{"id": 1}]}', '{"tokens": [], "x": 1}'])
def test_a_broken_file_changes_nothing_and_does_not_start_a_node(
    file: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_file, "LOOK_S", 0.0)
    token = make(file)
    found = TokenFile(str(file))
    file.write_text(broken)
    assert found.principal(token)
    assert found.principal(token[:-1]) is None
    with pytest.raises(InvalidArgument, match="not a file of tokens"):
        TokenFile(str(file))
    file.unlink()
    assert found.principal(token)
    with pytest.raises(InvalidArgument, match="cannot be read"):
        TokenFile(str(file))


def test_many_at_once_lose_nothing(file: Path) -> None:
    threads = [threading.Thread(target=make, args=(file, f"n{n}")) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.name for entry in token_file.read(file)} == {f"n{n}" for n in range(8)}


def test_limits(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, grants in (("", ["push:*"]), ("x\n", ["push:*"]), ("x", []), ("x", ["p:*"])):
        with pytest.raises(InvalidArgument):
            token_file.create(file, name, grants, 0)
    monkeypatch.setattr(token_file, "TOKENS_MAX", 1)
    make(file)
    with pytest.raises(InvalidArgument, match="revoke some"):
        make(file)


# --- the command ------------------------------------------------------------------------------


def weft(*words: str, file: Path, code: int = 0) -> str:
    told = CliRunner().invoke(cli, ["token", *words], env={"WEFT_TOKENS": str(file)})
    assert told.exit_code == code, (told.output, told.exception)
    return told.stdout


def test_create_list_revoke(file: Path) -> None:
    token = weft("create", "shop", "--grant", "push:orders.*", file=file).strip()
    assert TokenFile(str(file)).principal(token)
    told: dict[str, Any] = json.loads(
        weft("create", "eye", "--grant", "watch:*", "--expires", "never", "--json", file=file)
    )
    assert TokenFile(str(file)).principal(told["token"])
    assert told["expires"] is None
    listed = json.loads(weft("list", "--json", file=file))
    assert [(each["name"], each["grants"]) for each in listed] == [
        ("eye", ["watch:*"]),
        ("shop", ["push:orders.*"]),
    ]
    assert "token" not in listed[0]
    plain = weft("list", file=file)
    assert "shop  push:orders.*  expires 20" in plain
    assert token not in plain
    assert weft("revoke", told["id"], file=file) == f"revoked {told['id']} of eye\n"
    weft("revoke", "eye", file=file, code=2)
    assert [entry.name for entry in token_file.read(file)] == ["shop"]


@pytest.mark.parametrize(
    "words",
    [
        ("create", "x", "--grant", "everything"),
        ("create", "x", "--grant", "push:*", "--expires", "soon"),
        ("list",),
    ],
)
def test_what_goes_wrong_is_said(file: Path, words: tuple[str, ...]) -> None:
    weft(*words, file=file, code=2)


def test_expiry() -> None:
    assert expiry("never", 5) == 0
    assert expiry("2h", 1000.5) == 8200
    for wrong in ("", "0d", "-1d", "5", "1w", "1000000d"):
        with pytest.raises(InvalidArgument, match="30m, 12h or 90d"):
            expiry(wrong, 0)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be written"):
        make(tmp_path / "none" / "tokens.json")
    assert not os.path.exists(tmp_path / "none")
