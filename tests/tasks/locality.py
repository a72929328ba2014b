"""Locality over three sites, each in a network namespace with a spill folder of its own.

    python -m tests.tasks.locality [--tasks 600] [--seconds 0.05]

Two runs of tasks that read a block of 256 KiB and then sleep:

- balanced: a third of the blocks is at each site. At least 90 % of the tasks run at their data.
- one site: all blocks are at the first site. The makespan is at most 1.3 x the ideal, in which the
  processes of all three sites are busy all the time; two thirds of the tasks fetch their block.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.process.netns import Network, why_not

ROOT: Final = Path(__file__).resolve().parents[2]
SITES: Final = ("a", "b", "c")
NODE: Final = "node"
LOCAL_MIN: Final = 0.9
MAKESPAN_MAX: Final = 1.3
#: `weft`, which ends with this process, also if this process is killed.
WEFT: Final = (
    sys.executable, "-c",
    "import sys; from weft.tasks.child_process import end_with; end_with(int(sys.argv.pop(1))); "
    "from weft.client.cli.main import main; main()", str(os.getpid()),
)  # fmt: skip


def measure(count: int, seconds: float) -> dict[str, Any]:
    """Runs both parts; returns what the driver reports."""
    with ExitStack() as ends:
        network = ends.enter_context(Network(NODE, *SITES))
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory(prefix="weft-locality-")))
        servers = f"{network.address(NODE)}:7700"

        def start(host: str, *words: str) -> subprocess.Popen[bytes]:
            with (folder / f"{host}.log").open("wb") as log:
                process = subprocess.Popen(
                    [*network.within(host), *WEFT, *words], cwd=ROOT, stdin=subprocess.DEVNULL,
                    stdout=log, stderr=log,
                )  # fmt: skip
            ends.callback(process.wait, 60)
            ends.callback(process.terminate)
            return process

        start(NODE, "serve", "--data", str(folder / NODE), "--listen", servers, "--insecure")
        for site in SITES:
            start(
                site, "worker", "tests.tasks.near:app", "--site", site, "--spill",
                str(folder / site), "--servers", servers,
            )  # fmt: skip
        words = [sys.executable, "-m", "tests.tasks.locality_driver", servers]
        try:
            said = network.run(NODE, [*words, str(count), str(seconds), *SITES], cwd=ROOT)
        except subprocess.CalledProcessError as error:
            logs = "\n".join(path.read_text()[-2000:] for path in folder.glob("*.log"))
            raise AssertionError(f"{error.stderr}\n{logs}") from error
        report: dict[str, Any] = json.loads(said)
        return report


def missed(report: dict[str, Any]) -> list[str]:
    """The bounds that a report does not keep."""
    local, makespan = report["balanced"]["local share"], report["one site"]["makespan / ideal"]
    found = []
    if local < LOCAL_MIN:
        found.append(f"balanced: {local:.0%} of the tasks are local, at least {LOCAL_MIN:.0%}")
    if makespan > MAKESPAN_MAX:
        found.append(f"one site: {makespan:.2f} x the ideal, at most {MAKESPAN_MAX}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=0.05, help="the sleep of a task")
    asked = parser.parse_args()
    if why := why_not():
        print(f"no network namespaces: {why}")
        return 2
    report = measure(asked.tasks, asked.seconds)
    print(json.dumps(report, indent=1))
    for line in missed(report):
        print(line)
    return 1 if missed(report) else 0


if __name__ == "__main__":
    sys.exit(main())
