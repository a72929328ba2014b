"""Go programs: tools from pinned modules, and our own programs with stubs of `weft.proto`.

The Go proxy and its checksum database provide the modules. Stubs are generated for each build, by
the protoc inside grpcio-tools and by Go's own plugins, so that no generated Go is in the tree.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from . import build_cache
from .build_cache import Missing

PROTO: Final = Path(__file__).resolve().parents[2] / "proto" / "weft.proto"
#: A program links statically, and a result does not depend on the folder of the build.
_FLAGS: Final = {"CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false -trimpath"}


@dataclass(frozen=True)
class GoProgram:
    """A command of a public module, at a version that never moves."""

    name: str
    module: str
    version: str
    #: The folder of the command in the module.
    command: str = ""

    @property
    def package(self) -> str:
        return f"{self.module}/{self.command}".rstrip("/")


#: v2.6.0. The module lacks the suffix /v2, so Go accepts the release only by its commit.
H2SPEC: Final = GoProgram(
    "h2spec",
    "github.com/summerwind/h2spec",
    "v0.0.0-20200804131034-70ac22940108",
    "cmd/h2spec",
)
INTEROP_CLIENT: Final = GoProgram(
    "interop-client", "google.golang.org/grpc", "v1.85.0", "interop/client"
)
GRPCURL: Final = GoProgram("grpcurl", "github.com/fullstorydev/grpcurl", "v1.9.4", "cmd/grpcurl")
HEALTH_PROBE: Final = GoProgram(
    "grpc-health-probe", "github.com/grpc-ecosystem/grpc-health-probe", "v0.4.52"
)
PROTOC_GEN_GO: Final = GoProgram(
    "protoc-gen-go", "google.golang.org/protobuf", "v1.36.12", "cmd/protoc-gen-go"
)
PROTOC_GEN_GO_GRPC: Final = GoProgram(
    "protoc-gen-go-grpc", "google.golang.org/grpc/cmd/protoc-gen-go-grpc", "v1.6.2"
)


def tool(program: GoProgram) -> Path:
    """The executable of a pinned program; raises Missing if Go or its proxy is unavailable."""
    go = build_cache.required("go")

    def build(draft: Path) -> None:
        source = draft / "source"
        source.mkdir()
        # `go install` asks the proxy for all versions, which a mirror may not offer; a module that
        # requires the exact version does not.
        (source / "go.mod").write_text(
            f"module weft.invalid/tool\n\ngo 1.24\n\nrequire {program.module} {program.version}\n"
        )
        command = [go, "build", "-mod=mod", "-o", str(draft / program.name), program.package]
        build_cache.run(command, source, _FLAGS)
        shutil.rmtree(source)

    key = f"{program.name}-{build_cache.hash_of([program.package, program.version])}"
    return build_cache.entry(key, build) / program.name


def program(source: Path) -> Path:
    """The executable of a module of this repository, which imports `<module>/weftv1`."""
    go = build_cache.required("go")
    if importlib.util.find_spec("grpc_tools") is None:
        raise Missing("grpcio-tools is not installed (pip install -e '.[dev]')")
    plugins = (PROTOC_GEN_GO, PROTOC_GEN_GO_GRPC)

    def build(draft: Path) -> None:
        work = draft / "source"
        shutil.copytree(source, work)
        write_stubs(work)
        command = [go, "build", "-o", str(draft / source.name), "."]
        build_cache.run(command, work, _FLAGS)
        shutil.rmtree(work)

    versions = [each.version for each in plugins]
    key = f"{source.name}-{build_cache.hash_of([source, PROTO, *versions])}"
    return build_cache.entry(key, build) / source.name


def write_stubs(folder: Path) -> None:
    """Generates the package `weftv1` of the Go module in a folder."""
    head = (folder / "go.mod").read_text(encoding="utf-8").splitlines()[0]
    module = head.removeprefix("module ").strip()
    options = [f"module={module}", f"Mweft.proto={module}/weftv1"]
    words = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO.parent}"]
    for plugin, kind in ((PROTOC_GEN_GO, "go"), (PROTOC_GEN_GO_GRPC, "go-grpc")):
        words.append(f"--plugin={plugin.name}={tool(plugin)}")
        words.append(f"--{kind}_out={folder}")
        words += [f"--{kind}_opt={option}" for option in options]
    build_cache.run([*words, PROTO.name], folder)
