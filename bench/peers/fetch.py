"""Optional programs of a run: Debian packages, a newer NATS built with Go, Kafka's jars.

With --no-fetch nothing is downloaded. A system whose program is unavailable is skipped with a
message. Downloads other than Debian packages stay in a cache folder for the next run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

NATS_VERSION: Final = "2.15.2"
KAFKA_VERSION: Final = "4.1.1"
#: Timeout in seconds; a Go build on two cores takes a minute and a half.
_FETCH_S_MAX: Final = 900

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weft.bench</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId>
    <artifactId>kafka_2.13</artifactId>
    <version>{version}</version>
  </dependency></dependencies>
</project>
"""


class Missing(Exception):
    """A system cannot run here; the message names the missing program and how to install it."""


def cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "weft-bench"


def program(name: str, package: str, *, fetch: bool) -> None:
    """Raises Missing unless a program is installed; with `fetch`, root first tries apt."""
    if shutil.which(name) is not None:
        return
    if fetch and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _apt(package)
    if shutil.which(name) is None:
        raise Missing(f"{name} is not installed (apt-get install {package})")


def nats_server() -> str:
    """The path of the NATS server built from newer source, or else of Debian's package."""
    built = cache() / f"nats-{NATS_VERSION}" / "nats-server"
    return str(built) if built.exists() else "nats-server"


def nats(*, fetch: bool) -> None:
    if Path(nats_server()).is_absolute():
        return
    go = shutil.which("go")
    if fetch and go is not None:
        try:
            _go_install(go)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            pass  # Go's modules are unreachable: use Debian's package and report the version.
        else:
            return
    program("nats-server", "nats-server", fetch=fetch)


def kafka_jars() -> Path:
    return cache() / f"kafka-{KAFKA_VERSION}"


def kafka(*, fetch: bool) -> None:
    program("java", "openjdk-17-jre-headless", fetch=fetch)
    if kafka_jars().exists():
        return
    if not fetch:
        raise Missing("Kafka's jars are not here yet: run without --no-fetch, with Maven installed")
    program("mvn", "maven", fetch=fetch)
    folder = cache() / "kafka-partial"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(version=KAFKA_VERSION))
    copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars"]
    try:
        _run(["mvn", "-q", "-B", *copy], folder)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        raise Missing("Maven could not get Kafka's jars: is its registry reachable?") from None
    (folder / "jars").rename(kafka_jars())
    shutil.rmtree(folder)


def _apt(package: str) -> None:
    """Installs a package and ignores failures; the caller checks for the program afterwards."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package],
    ):
        subprocess.run(
            command, env=environment, check=False, capture_output=True, timeout=_FETCH_S_MAX
        )


def _go_install(go: str) -> None:
    folder = cache() / "nats-partial"
    folder.mkdir(parents=True, exist_ok=True)
    module = f"github.com/nats-io/nats-server/v2@v{NATS_VERSION}"
    _run([go, "install", module], folder, {"GOBIN": str(folder)})
    folder.rename(cache() / f"nats-{NATS_VERSION}")


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        check=True,
        capture_output=True,
        timeout=_FETCH_S_MAX,
    )
