"""The client programs: built once from this folder, and controlled through lines of JSON."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from bench.peers.workers import Worker
from tools.languages import go_programs, maven_projects, npm_packages
from tools.languages.build_cache import Missing as Missing

HERE: Final = Path(__file__).parent


@cache
def command(language: str) -> tuple[str, ...]:
    """The command of a client program; raises Missing if it cannot be built here."""
    if language == "go":
        return (str(go_programs.program(HERE / "go")),)
    if language == "node":
        npm_packages.installed(HERE / "node" / "package.json")
        return ("node", str(HERE / "node" / "bench.js"), str(go_programs.PROTO))
    if language == "java":
        return ("java", "-cp", maven_projects.classpath(HERE / "java"), "weft.bench.Bench")
    return ()


def _environment(language: str) -> dict[str, str]:
    if language != "node":
        return {}
    return {"NODE_PATH": str(npm_packages.installed(HERE / "node" / "package.json"))}


class Program(Worker):
    """One measurement by a client program."""

    def __init__(self, language: str, task: dict[str, Any]) -> None:
        self._name = f"{task['system']} by {language}"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by close)
        self._process = subprocess.Popen(
            [*command(language), json.dumps(task)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, **_environment(language)},
            start_new_session=True,
        )
        self._heard = b""
