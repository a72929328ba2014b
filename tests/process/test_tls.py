"""TLS with a private authority: the printed commands of docs/how-to/secure.md, on three hosts."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft
from tests.process.netns import Network, why_not
from weft.client.cli.doctor import security
from weft.node_process import unused_ports

pytestmark = pytest.mark.process

SECTION = (
    (Path(__file__).parents[2] / "docs" / "how-to" / "secure.md")
    .read_text()
    .split("## TLS with a private authority")[1]
)
COMMANDS, PROGRAM = (
    re.findall(rf"```{language}\n(.*?)```", SECTION, re.S)[0] for language in ("", "python")
)
HOSTS = ["a.example", "b.example", "c.example"]
#: `ip netns exec` has a separate file system: each host resolves the others' names.
NAMED = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"']
Within = Callable[[str], list[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`weft` and `python` are those under test; no setting comes from outside."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("weft", "-m weft.client.cli.main "), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words}"$@"\n')
        (programs / name).chmod(0o755)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WEFT_")}
    return {**kept, "PATH": f"{programs}:{os.environ['PATH']}"}


@contextmanager
def nodes(
    commands: dict[str, str], within: Within, folder: Path, environment: dict[str, str]
) -> Iterator[dict[str, Path]]:  # fmt: skip
    """Run the nodes' commands, each once the one before serves; yield their logs."""
    logs = {host: folder / f"{host}.log" for host in commands}
    running: list[subprocess.Popen[bytes]] = []
    try:
        for host, command in commands.items():
            with logs[host].open("wb") as log:
                words = [*within(host), "sh", "-c", f"exec {command}"]
                started = subprocess.Popen(
                    words, cwd=folder, env=environment, stdout=log, stderr=log,
                    stdin=subprocess.DEVNULL,
                )  # fmt: skip
            running.append(started)
            until_serving(logs[host], started)
        yield logs
    finally:
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until_serving(log: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while "is serving" not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        time.sleep(0.1)


def commands_for(text: str, hosts: list[str]) -> dict[str, str]:
    """The command under each `# On HOST:`."""
    found = dict(re.findall(r"^# On (\S+):\n(weft serve .*)$", text, re.M))
    assert list(found) == hosts
    return found


def test_the_commands_of_the_documentation(tmp_path: Path, environment: dict[str, str]) -> None:
    if why := why_not():
        pytest.skip(why)

    def shell(script: str, within: list[str]) -> str:
        done = subprocess.run(
            [*within, "sh", "-ec", script], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    first, rest = COMMANDS.split("\n", 1)
    printed = shell(first, []).split("\n", 1)
    assert printed[0].startswith("# created: certs/ca.key")
    assert printed[1] == rest, "the documentation shows what `weft tls init` prints"
    shell(next(line for line in rest.splitlines() if line.startswith("weft token")), [])
    with Network("a", "b", "c", "client") as network:
        lines = [f"{network.address(host[0])} {host}\n" for host in HOSTS]
        (tmp_path / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))

        def within(host: str) -> list[str]:
            named = [*NAMED, str(tmp_path / "hosts")]
            return [*network.within("client" if host == "client" else host[0]), *named]

        with nodes(commands_for(rest, HOSTS), within, tmp_path, environment) as logs:
            client = rest.split("# On a client", 1)[1].split("\n", 1)[1]
            shown = shell(client, within("client"))
            assert all(f"{host}:7700" in shown for host in HOSTS)
            (tmp_path / "program.py").write_text(PROGRAM)
            setting = client.splitlines()[0]
            assert "encrypted on every path" in shell("python program.py", within("client"))
            shell(f"{setting}; weft push hello again", within("client"))
            assert shell(f"{setting}; weft pop hello --wait-ms 5000", within("client")) == "again\n"
            for host in HOSTS:
                assert f"metrics are at      https://{host}:7702/metrics" in logs[host].read_text()
                mode = stat.S_IMODE((tmp_path / f"data-{host}").stat().st_mode)
                assert mode == 0o700


def test_mutual_tls_by_the_printed_commands_and_mistakes_of_a_joining_node(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    (port,) = unused_ports(1)
    hosts = ["127.0.0.1", "127.0.0.2"]
    printed = _weft(tmp_path, environment, "tls", "init", "certs", "--hosts", ",".join(hosts),
                    "--port", str(port), "--client", "shop")  # fmt: skip
    for key in tmp_path.glob("*/*.key"):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600, key
    assert stat.S_IMODE((tmp_path / "certs").stat().st_mode) == 0o700
    token = next(line for line in printed.splitlines() if line.startswith("weft token"))
    subprocess.run(token, shell=True, cwd=tmp_path, env=environment, check=True)
    made = commands_for(printed, hosts)
    with nodes(made, lambda host: [], tmp_path, environment):
        exported = re.search(r"^export (.*)$", printed, re.M)
        assert exported
        settings = dict(word.split("=", 1) for word in exported[1].split())
        status = _weft(tmp_path, {**environment, **settings}, "cluster", "status", "--json")
        assert len(json.loads(status)["nodes"]) == 2
        del settings["WEFT_TLS_CLIENT_CERT"], settings["WEFT_TLS_CLIENT_KEY"]
        told = _run(tmp_path, {**environment, **settings}, "queue", "list", "--json")
        error = json.loads(told.stderr)["error"]
        assert (error["code"], "demands a client certificate" in error["message"]) == ("TLS", True)
        plain = dict.fromkeys(("--tls-trust-ca", "--tls-client-ca", "--tls-cert", "--tls-key"))
        command = _changed(made[hosts[1]], {**plain, "--data": "other"})
        done = _run(tmp_path, environment, *command)
        assert done.returncode == 1, done
        assert "is encrypted with TLS" in done.stderr
        assert not (tmp_path / "other").exists(), "nothing is made for a cluster not joined"


def _changed(command: str, changes: dict[str, str | None]) -> list[str]:
    """A command's words, with some options changed, or left out."""
    words = shlex.split(command)[1:]
    for option, value in changes.items():
        place = words.index(option)
        words[place : place + 2] = [] if value is None else [option, value]
    return words


def _run(
    folder: Path, environment: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["weft", *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip


def _weft(folder: Path, environment: dict[str, str], *words: str) -> str:
    done = _run(folder, environment, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wider_data_directory_is_warned_of_and_not_changed(tmp_path: Path) -> None:
    from tests.process.live_node import LiveNode

    data = tmp_path / "node"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    with LiveNode(data, log=tmp_path / "log").start():
        pass
    assert "other users can read the data directory" in (tmp_path / "log").read_text()
    assert stat.S_IMODE(data.stat().st_mode) == 0o755
    (tmp_path / "weft.toml").write_text(f'data = "{data}"\n')
    found = {f.check: f for f in security.check_settings(str(tmp_path / "weft.toml"))}
    assert (found["data"].level, found["data"].advice) == ("WARN", f"chmod 700 {data}")
    assert weft.TlsError.code == "TLS"
