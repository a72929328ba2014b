"""The token file: the tokens a node accepts, changes under a running node, and `weft token`."""

from __future__ import annotations

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from weft.client.cli.main import cli
from weft.errors import InvalidArgument, PermissionDenied, Unauthenticated
from weft.proto import wire
from weft.server.security import token_file
from weft.server.security.access import Access, Grant, Principal
from weft.server.security.token_command import expiry
from weft.server.security.token_file import TokenFile


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
    monkeypatch.setattr(token_file, "POLL_S", 0.0)
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
    monkeypatch.setattr(token_file, "POLL_S", 0.0)
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
    monkeypatch.setattr(token_file, "POLL_S", 1000.0)
    token = make(file)
    found = TokenFile(str(file))
    for _ in range(10):
        assert found.principal(token)
    assert len(looks) == 1
    found._check_at = 0.0  # the file is due for a check
    for _ in range(10):
        assert found.principal(token)
    assert len(looks) == 2


@pytest.mark.parametrize("broken", ["", "{", '{"tokens": [{"id": 1}]}', '{"tokens": [], "x": 1}'])
def test_a_broken_file_changes_nothing_and_does_not_start_a_node(
    file: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_file, "POLL_S", 0.0)
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
        with pytest.raises(InvalidArgument, match="30m, 12h, 90d or never"):
            expiry(wrong, 0)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be written"):
        make(tmp_path / "none" / "tokens.json")
    assert not os.path.exists(tmp_path / "none")
