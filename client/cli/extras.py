"""Optional dependencies: the pip extra of each module, and the error if a module is missing."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Final

from weft.errors import MissingExtra

#: Module -> the extra that installs it.
EXTRAS: Final[dict[str, str]] = {
    "cronsim": "tasks",
    "grpc_health": "server",
    "grpc_reflection": "server",
    "plyvel": "server",
    "matplotlib": "models",
    "mpi4py": "mpi",
    "numpy": "mpi",
    "pandas": "spark",
    "prometheus_client": "server",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
}
#: The first Python for which the package index has no wheel of plyvel.
PLYVEL_PYTHON_END: Final = (3, 13)


def load(module: str) -> ModuleType:
    """Imports a module of Weft; raises MissingExtra if a dependency from an extra is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise explain(error) from error


def explain(error: ModuleNotFoundError) -> Exception:
    """MissingExtra with the extra's name; for an unknown module, the original error.

    A missing module outside `EXTRAS` means a broken installation, so the traceback is wanted.
    """
    name = (error.name or "").partition(".")[0]
    if name not in EXTRAS:
        return error
    newer = sys.version_info >= PLYVEL_PYTHON_END
    if EXTRAS[name] == "server" and newer and importlib.util.find_spec("plyvel") is None:
        running = ".".join(map(str, sys.version_info[:2]))
        return MissingExtra(
            f"a node needs plyvel (LevelDB), which has no wheel for Python {running}: run the node "
            "with Python 3.11 or 3.12 and pip install 'weft[server]' there; clients and commands "
            f"work with Python {running}"
        )
    return MissingExtra(f"{name} is not installed: pip install 'weft[{EXTRAS[name]}]'")


def missing(extra: str) -> list[str]:
    """The modules of an extra that are not installed."""
    absent = []
    for name in (module for module, of in EXTRAS.items() if of == extra):
        try:
            importlib.import_module(name)
        except ImportError:
            absent.append(name)
    return absent
