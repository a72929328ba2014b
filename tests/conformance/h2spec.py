"""Runs h2spec, the conformance suite of HTTP/2 and HPACK, and reads its results.

A server that does not react as required costs one timeout per case, so the sections run
concurrently: a server with many failures is judged in seconds, too.
"""

from __future__ import annotations

import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.conformance.served_address import ServedAddress

SECTIONS: Final = (
    *(f"generic/{number}" for number in (1, 2, 4, 5)),
    *(f"generic/3.{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10)),
    *(f"http2/{number}" for number in (3, 4, 7)),
    *(f"http2/5.{number}" for number in (1, 3, 4, 5)),
    *(f"http2/6.{number}" for number in (1, 2, 3, 4, 5, 7, 8, 9, 10)),
    *(f"http2/8.{number}" for number in ("1/1", "1.2/1", "1.2.1", "1.2.2", "1.2.3", "1.2.6", "2")),
    *(f"hpack/{number}" for number in (2, 4, 5, 6)),
)
#: Cases of all sections, as the pinned version lists them with --dryrun; one more is strict only.
CASES: Final = 146
STRICT_CASES: Final = 147
#: Sections at a time: enough to overlap all timeouts.
_CONCURRENT: Final = 16
#: Seconds for one case. A conforming server answers at once, so only a failure takes that long, and
#: a busy machine does not fail a case.
CASE_S: Final = 10
#: Ends a hang; the longest section has 20 cases.
_SECTION_S_MAX: Final = 200.0


@dataclass
class Report:
    """Titles of cases; a case that h2spec cannot run on this server counts as skipped."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return len(self.passed) + len(self.failed) + len(self.skipped)


def run(
    program: Path,
    address: ServedAddress,
    *,
    strict: bool = False,
    sections: tuple[str, ...] = SECTIONS,
    case_s: int = CASE_S,
) -> Report:
    """Judges a server; the certificate of a TLS server is not verified."""
    flags = ["--host", address.host, "--port", str(address.port), "--timeout", str(case_s)]
    flags += ["--strict"] * strict + ["--tls", "--insecure"] * (address.authority is not None)
    report = Report()
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(_CONCURRENT, "h2spec") as executor,
    ):
        files = [Path(folder) / f"{number}.xml" for number in range(len(sections))]
        commands = [
            [str(program), section, *flags, "--junit-report", str(file)]
            for section, file in zip(sections, files, strict=True)
        ]
        said = list(executor.map(_run, commands))
        for section, file, text in zip(sections, files, said, strict=True):
            assert file.exists(), f"h2spec {section} wrote no report: {text}"
            _read(file, report)
    return report


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_SECTION_S_MAX,
        check=False,
    )
    return done.stdout[-1000:] + done.stderr[-1000:]


def _read(file: Path, report: Report) -> None:
    for case in ElementTree.parse(file).iter("testcase"):
        title = f"{case.get('package')}: {case.get('classname')}"
        if case.find("failure") is not None or case.find("error") is not None:
            report.failed.append(title)
        elif case.find("skipped") is not None:
            report.skipped.append(title)
        else:
            report.passed.append(title)
