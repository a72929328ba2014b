"""Java programs, built by Maven with stubs of `weft.proto`."""

from __future__ import annotations

import shutil
from pathlib import Path

from . import build_cache
from .go_programs import PROTO


def classpath(project: Path) -> str:
    """The class path of a project, whose pom takes the folder of the proto as `weft.proto`.

    Maven copies the libraries to `target/libraries` (maven-dependency-plugin).
    """
    build_cache.required("java")
    build_cache.required("javac")
    maven = build_cache.required("mvn")

    def build(draft: Path) -> None:
        work = draft / "source"
        shutil.copytree(project, work, ignore=shutil.ignore_patterns("target"))
        protos = draft / "proto"
        protos.mkdir()
        shutil.copy(PROTO, protos)
        build_cache.run([maven, "-q", "-B", f"-Dweft.proto={protos}", "package"], work)
        target = work / "target"
        (target / "libraries").rename(draft / "libraries")
        (target / "classes").rename(draft / "classes")
        shutil.rmtree(work)

    key = f"{project.name}-{build_cache.hash_of([project, PROTO])}"
    kept = build_cache.entry(key, build)
    return f"{kept / 'classes'}:{kept / 'libraries'}/*"
