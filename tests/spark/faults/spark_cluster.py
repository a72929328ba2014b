"""A standalone Spark: a master and workers, from the Spark that pip installed."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import pyspark

from tests.spark.session import environment

START_S_MAX: Final = 200.0
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")


class SparkCluster:
    """Use it with `with`. Each worker has a separate host name, and two cores."""

    def __init__(self, folder: Path, hosts: Sequence[str]) -> None:
        self._folder = folder
        self._hosts = hosts
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""

    def __enter__(self) -> SparkCluster:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._run("master", "Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self.master = self._awaited("master", _MASTER)
            for host in self._hosts:
                self._run(
                    host, "Worker", "--host", host, "--webui-port", "0", "--cores", "2",
                    "--memory", "1g", "--work-dir", str(self._folder / f"work-{host}"), self.master,
                )  # fmt: skip
            for host in self._hosts:
                self._awaited(host, re.compile(r"(Successfully registered with master)"))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, name: str, role: str, *flags: str) -> None:
        home = Path(pyspark.__file__).parent
        kind = f"org.apache.spark.deploy.{role.lower()}.{role}"
        variables = environment() | {"SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        variables.pop("SPARK_LOCAL_IP")  # each worker has a separate address
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [str(home / "bin" / "spark-class"), kind, *flags],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )

    def _awaited(self, name: str, pattern: re.Pattern[str]) -> str:
        """The match of `pattern` in a process's log, which shows that the process is ready."""
        process = self._processes[-1]
        log = self._folder / f"{name}.log"
        end = time.monotonic() + START_S_MAX
        while not (found := pattern.search(log.read_text(errors="replace"))):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(
                    f"{name} did not start: {log.read_text(errors='replace')[-2000:]}"
                )
            time.sleep(0.1)
        return found.group(1)
