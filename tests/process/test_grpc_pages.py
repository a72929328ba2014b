"""The programs of docs/how-to/grpc-*.md run as printed against a real node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.test_node_js import environment as environment  # a fixture
from weft.testing import cluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto" / "weft.proto"
#: Words by which Go reports a missing network, as opposed to a wrong program.
OFFLINE = ("dial tcp", "no such host", "i/o timeout", "connection refused")


def page(name: str, language: str) -> tuple[str, str]:
    """The program of a page, and the output that the page shows."""
    text = (ROOT / "docs" / "how-to" / name).read_text()
    program = blocks(text, language)[0]
    return program, text.split("It prints:\n\n```\n")[1].split("```")[0]


def blocks(text: str, language: str) -> list[str]:
    found: list[str] = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    return found


@pytest.mark.parametrize(
    ("name", "language", "first"),
    [("grpc-go.md", "go", 1), ("grpc-node.md", "js", 1), ("grpc-java.md", "java", 0),
     ("grpc-java.md", "xml", 0)],
)  # fmt: skip
def test_excerpts_are_what_the_examples_say(name: str, language: str, first: int) -> None:
    """A page shows parts of programs that other tests compile and run."""
    sources = [*(ROOT / "examples").rglob("*"), *(ROOT / "bench" / "languages").rglob("*")]
    texts = [path.read_text() for path in sources if path.suffix[1:] in (language, f"{language}s")]
    shown = blocks((ROOT / "docs" / "how-to" / name).read_text(), language)[first:]
    assert shown
    for block in shown:
        assert any(block in text for text in texts), block


def run(words: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    if done.returncode and words[0] == "go" and any(word in done.stderr for word in OFFLINE):
        pytest.skip("Go cannot reach its module proxy, and the modules are not here yet")
    assert done.returncode == 0, done.stdout + done.stderr
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def test_node_js(environment: dict[str, str], tmp_path: Path) -> None:
    program, shown = page("grpc-node.md", "js")
    (tmp_path / "orders.js").write_text(program)
    with cluster() as node:
        words = ["node", "orders.js", node.servers[0], str(PROTO)]
        assert run(words, tmp_path, environment) == shown


def test_streams(tmp_path: Path) -> None:
    program, shown = page("grpc-streams.md", "python")
    (tmp_path / "streams.py").write_text(program)
    with cluster() as node:
        words = [sys.executable, "streams.py", node.servers[0]]
        assert run(words, tmp_path, dict(os.environ)) == shown


def test_go(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    if shutil.which("go") is None:
        pytest.skip("go is not installed")
    program, shown = page("grpc-go.md", "go")
    (tmp_path / "main.go").write_text(program)
    shutil.copy(PROTO, tmp_path)
    environment = os.environ | {"GOBIN": str(tmp_path / "bin")}
    environment["PATH"] = f"{environment['GOBIN']}:{os.environ['PATH']}"
    text = (ROOT / "docs" / "how-to" / "grpc-go.md").read_text().partition("## A worker")[0]
    for command in re.findall(r"^(?:go install|protoc) .*$", text, re.MULTILINE):
        words = command.split()
        if words[0] == "protoc":  # the same compiler, which the test tools bring along
            words = [sys.executable, "-m", "grpc_tools.protoc", *words[1:]]
        run(words, tmp_path, environment)
    run(["go", "mod", "init", "example.com/orders"], tmp_path, environment)
    run(["go", "mod", "tidy"], tmp_path, environment)
    with cluster() as node:
        assert run(["go", "run", ".", node.servers[0]], tmp_path, environment) == shown
