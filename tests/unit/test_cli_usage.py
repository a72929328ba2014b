"""The `weft` command without a node: usage, exit codes, errors for people and as JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from weft.client.cli import failure
from weft.client.cli.advice import TRY
from weft.client.cli.main import COMMANDS, cli
from weft.errors import BY_CODE, InvalidArgument, MissingExtra, QueueNotFound, WeftError

#: Nothing listens on port 1.
NOWHERE = ["-s", "127.0.0.1:1", "--timeout-ms", "100"]


def run(*words: str, stdin: str | bytes = "") -> Result:
    return CliRunner(env={"WEFT_SERVERS": None, "WEFT_TIMEOUT_MS": None}).invoke(
        cli, list(words), input=stdin
    )


def test_every_error_has_an_advice_and_no_other_is_there() -> None:
    assert TRY.keys() == BY_CODE.keys()
    assert all(TRY.values())


@pytest.mark.parametrize(
    ("error", "code"),
    [(InvalidArgument("x"), 2), (MissingExtra("x"), 2), (QueueNotFound("x"), 1), (WeftError(), 1)],
)
def test_exit_codes(error: WeftError, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure.show(error, as_json=False) == code
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"error: {error.message}"
    assert second == f"try: {TRY[error.code]}"


def test_the_help_lists_every_command() -> None:
    told = run("--help")
    assert told.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in told.stdout


@pytest.mark.parametrize("name", [*COMMANDS])
def test_each_command_has_help(name: str) -> None:
    told = run(name, "--help")
    assert told.exit_code == 0
    assert told.stdout.startswith(f"Usage: weft {name} ")


@pytest.mark.parametrize(
    "words",
    [
        ["nothing"],
        ["queue", "nothing"],
        ["queue", "create"],
        ["queue", "create", "orders", "--lease-ms", "soon"],
        ["queue", "create", "a b"],
        ["queue", "update", "orders"],
        ["queue", "delete", "orders"],
        ["queue", "purge", "orders"],
        ["queue", "redrive", "orders", "--limit", "-1"],
        ["cluster", "nothing"],
        ["cluster", "leave"],
        ["cluster", "status", "more"],
        ["cluster", "up", "-n", "0"],
        ["cluster", "up", "--base-port", "65535"],
        ["-s", "127.0.0.1:1", "cluster", "up"],
        ["push", "orders"],
        ["push", "orders", "body", "--lines", "-"],
        ["push", "orders", "--lines", "-", "--dedup-key", "k"],
        ["push", "orders", "--lines", "/no/such/file"],
        ["push", "orders", "body", "--header", "novalue"],
        ["pop", "orders", "-n", "0"],
        ["call", "orders"],
        ["call", "orders", "question", "--header", "novalue"],
        ["reply", "orders"],
        ["reply", "orders", "body", "--exec", "cat"],
        ["reply", "orders", "body", "-n", "0"],
        ["peek", "orders", "-n", "65537"],
        ["kv", "cas", "k", "--new", "v"],
        ["kv", "cas", "k", "--absent", "--old", "o", "--new", "v"],
        ["kv", "cas", "k", "--absent"],
        ["bench", "--batch", "4097"],
        ["bench", "--own", "-s", "127.0.0.1:1"],
        ["--timeout-ms", "0", "status"],
        ["-s", "nonsense:port", "status"],
        ["-s", "127.0.0.1:1", "serve"],
    ],
)
def test_wrong_usage_exits_2_and_says_why(words: list[str]) -> None:
    told = run(*words)
    assert told.exit_code == 2
    assert "rror: " in told.stderr
    assert "Traceback" not in told.stderr
    assert told.stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "list"],
        ["queue", "create", "orders"],
        ["queue", "show", "orders"],
        ["queue", "update", "orders", "--lease-ms", "1000"],
        ["queue", "delete", "orders", "--yes"],
        ["queue", "purge", "orders", "--yes"],
        ["queue", "redrive", "orders"],
        ["push", "orders", "body"],
        ["push", "orders", "--lines", "-"],
        ["pop", "orders"],
        ["call", "orders", "question"],
        ["reply", "orders", "body"],
        ["peek", "orders"],
        ["kv", "insert", "k", "v"],
        ["kv", "lookup", "k"],
        ["kv", "remove", "k"],
        ["kv", "append", "k", "v"],
        ["kv", "cas", "k", "--absent", "--new", "v"],
        ["status"],
        ["cluster", "status"],
        ["cluster", "leave", "node", "--yes"],
        ["bench"],
    ],
)
def test_no_node_is_an_error_that_says_what_to_do(words: list[str]) -> None:
    told = run(*NOWHERE, *words)
    assert told.exit_code == 1
    assert told.stdout == ""
    first, second = told.stderr.splitlines()
    assert first.startswith("error: ")
    assert "127.0.0.1:1" in first
    assert second.startswith("try: start a node with `weft serve`")


def test_an_error_as_json_with_the_flag_on_either_side() -> None:
    for words in (["--json", *NOWHERE, "status"], ["status", *NOWHERE, "--json"]):
        told = run(*words)
        assert told.exit_code == 1
        error = json.loads(told.stderr)["error"]
        assert error["code"] == "CONNECTION_LOST"
        assert error["retriable"] is True
        assert "127.0.0.1:1" in error["message"]


def test_wrong_usage_as_json() -> None:
    told = run("queue", "create", "--json")
    assert told.exit_code == 2
    assert json.loads(told.stderr)["error"]["code"] == "USAGE"


def test_json_after_two_dashes_is_a_body() -> None:
    told = run(*NOWHERE, "push", "orders", "--", "--json")
    assert told.exit_code == 1
    assert told.stderr.startswith("error: ")


def test_the_options_near_the_command_win() -> None:
    told = run("-s", "127.0.0.1:2", "status", *NOWHERE)
    assert "127.0.0.1:1:" in told.stderr
    assert "127.0.0.1:2" not in told.stderr


def test_the_environment_names_the_servers() -> None:
    told = CliRunner(env={"WEFT_SERVERS": "127.0.0.1:3", "WEFT_TIMEOUT_MS": "100"}).invoke(
        cli, ["status"]
    )
    assert told.exit_code == 1
    assert "127.0.0.1:3" in told.stderr


def test_doctor_fails_without_a_node() -> None:
    told = run(*NOWHERE, "doctor", "--json")
    assert told.exit_code == 1
    failed = [one for one in json.loads(told.stdout) if one["level"] == "FAIL"]
    assert [one["check"] for one in failed] == ["127.0.0.1:1 gRPC"]
    assert "weft serve" in failed[0]["advice"]


def test_completion_knows_the_commands() -> None:
    told = CliRunner(
        env={"_WEFT_COMPLETE": "bash_complete", "COMP_WORDS": "weft p", "COMP_CWORD": "1"}
    ).invoke(cli, [], prog_name="weft")
    assert [line.partition(",")[2] for line in told.stdout.split()] == [
        "push", "pop", "peek", "provision",
    ]  # fmt: skip


@pytest.mark.parametrize("words", [["serve"], ["bench", "--own"], ["cluster", "up"]])
def test_a_missing_extra_is_named(words: list[str]) -> None:
    """In a separate process: here the extra's modules are loaded already."""
    script = (
        "import sys; sys.modules['plyvel'] = None\n"
        f"from weft.client.cli.main import cli; cli.main({words!r})"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.returncode == 2, told.stderr
    assert "pip install 'weft[server]'" in told.stderr
    assert "Traceback" not in told.stderr


def test_a_push_loads_neither_the_server_nor_what_others_need() -> None:
    script = (
        "import sys\nfrom weft.client.cli.main import cli\n"
        f"cli.main({[*NOWHERE, 'push', 'orders', 'x']!r}, standalone_mode=False)\n"
        "print(*sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    loaded = set(told.stdout.split())
    assert "weft.client.sync_client" in loaded
    assert not {"plyvel", "rich", "weft.server", "weft.client.cli.bench"} & loaded
