"""Tidiness: packaging, imports between packages, size limits, and content banned from the tree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parents[2]
#: The packages, and which of the others each may import. All may import `FOUNDATION`.
MAY_IMPORT: dict[str, set[str]] = {
    "transport": set(),
    "proto": {"transport"},
    "persistence": set(),
    "dht": {"persistence", "proto"},
    "server": {"dht", "persistence", "proto", "transport"},
    "models": set(),  # the papers' models are independent of the product
    "client": {"dht", "models", "proto", "transport"},  # models: the command `weft model` alone
    "mpsc": {"client"},  # its gateway alone; the queues are independent
    "spark": {"client", "tasks"},  # tasks: workers in executors
    "tasks": {"client"},
}
#: Packages beside `weft`: Spark looks for its data sources by this name.
BESIDE = ("pyspark_weft",)
FOUNDATION = {
    "credit_buckets", "errors", "ids", "limits", "pop_search", "probe_walk", "shell_command",
    "spin_wait",
}  # fmt: skip
#: The client makes the public names of `import weft`, so the client's commands may use them too.
FACE = set(weft.__all__) | {"__version__", "aio", "node_process", "testing"}
PURE = ("dht", "server/engine", "server/core")
#: Modules that access a socket, a thread, a clock, randomness or a disk.
IMPURE = {
    "asyncio", "concurrent", "contextvars", "datetime", "fcntl", "grpc", "io", "logging",
    "multiprocessing", "os", "pathlib", "plyvel", "queue", "random", "resource", "secrets",
    "select", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading",
    "time", "uuid", "zmq",
}  # fmt: skip
#: Nouns that end like participles.
NOUNS = {"fanout_ring", "finding", "routing", "testing", "tracing"}
FILE_LINES_MAX, FUNCTION_LINES_MAX, LINE_MAX = 400, 70, 100
COMPLEXITY_MAX = 19
BANNED_NAMES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
PAPERS = ("README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md", "ARCHITECTURE.md")
#: Assembled from parts, so that the patterns do not match this file.
NOT_OURS = {
    "a path of somebody's machine": r"(?<![\w.])/(?:" + "|".join(["home", "Users", "root", "work"])
    + r")/\w",
    "a package registry": r"(?i)index" + r"[-_]url|artifac" + r"tory|npm" + r"js\.(?:org|com)|"
    r"py" + r"pi\.(?:org|io)/simple|://registry" + r"\.",
}  # fmt: skip


@cache
def tracked() -> list[Path]:
    """Every file that ships: tracked by git, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    names = listed.stdout.decode().split("\0")
    paths = [ROOT / name for name in names if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def sources() -> list[Path]:
    """Our own Python, without the generated stubs."""
    return [path for path in tracked() if path.suffix == ".py" and "_pb2" not in path.name]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[str]:
    """The absolute names that a file imports, anywhere; relative imports stay in their package."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module == "weft":
                yield from (f"weft.{alias.name}" for alias in node.names)
            else:
                yield node.module


def test_only_the_gateway_knows_the_client() -> None:
    users = {
        name_of(path)
        for path in sources()
        if name_of(path).startswith("mpsc/")
        and any(name.startswith("weft.client") for name in imports(path))
    }
    assert users == {"mpsc/gateway.py"}


def test_only_the_model_command_knows_the_models() -> None:
    users = {
        path.parent.relative_to(ROOT).as_posix()
        for path in sources()
        if name_of(path).startswith("client/")
        and any(name.startswith("weft.models") for name in imports(path))
    }
    assert users <= {"client/cli/model"}


# --- packaging --------------------------------------------------------------------------------


def test_every_package_is_listed_mapped_and_linked() -> None:
    """A forgotten package would silently drop out of the wheel."""
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "setuptools"
    ]
    found = {"weft": "weft", **{name: name for name in BESIDE}}
    for room in MAY_IMPORT:
        for init in sorted((ROOT / room).rglob("__init__.py")):
            folder = init.parent.relative_to(ROOT).as_posix()
            found["weft." + folder.replace("/", ".")] = folder
    assert setup["package-dir"] == found
    assert sorted(setup["packages"]) == sorted(found)
    links = {path.name: path.readlink() for path in (ROOT / "weft").iterdir() if path.is_symlink()}
    assert links == {room: Path("..") / room for room in MAY_IMPORT}


def test_every_folder_with_code_is_a_package() -> None:
    for path in sources():
        if path.relative_to(ROOT).parts[0] in MAY_IMPORT:
            assert (path.parent / "__init__.py").exists(), f"{name_of(path)} would not ship"


def test_the_papers_are_there() -> None:
    for name in PAPERS:
        assert (ROOT / name).stat().st_size > 100, name
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_generated_stubs_are_fresh(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    outs = [f"--{kind}_out={tmp_path}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run(
        [sys.executable, "-m", "grpc_tools.protoc", "-I.", *outs, "weft/proto/weft.proto"],
        cwd=ROOT,
        check=True,
    )
    for name in ("weft_pb2.py", "weft_pb2.pyi", "weft_pb2_grpc.py"):
        fresh = (tmp_path / "weft" / "proto" / name).read_text(encoding="utf-8")
        kept = (ROOT / "proto" / name).read_text(encoding="utf-8")
        assert kept == fresh, f"proto/{name} is not what weft.proto says: run `make proto`"


# --- imports between packages -----------------------------------------------------------------


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text(
        "import os.path, zmq\nfrom weft import dht, ids\nfrom . import near\nfrom .near import x\n"
        "def f():\n    import server\n    from weft.server.node.node import Node\n",
        encoding="utf-8",
    )
    assert list(imports(path)) == [
        "os.path", "zmq", "weft.dht", "weft.ids", "server", "weft.server.node.node",
    ]  # fmt: skip


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may(room: str) -> None:
    allowed = MAY_IMPORT[room] | FOUNDATION | {room}
    for path in sources():
        if path.relative_to(ROOT).parts[0] != room:
            continue
        for name in imports(path):
            top, *rest = name.split(".")
            face = room == "client" or name_of(path).startswith(
                ("spark/examples/", "tasks/testing")
            )
            if top != "weft" or (face and (not rest or rest[0] in FACE)):
                continue
            assert rest, f"{name_of(path)} imports weft, which is the client's face"
            assert rest[0] in allowed, f"{name_of(path)} imports {name}"


def test_nobody_imports_a_room_by_its_bare_name() -> None:
    for path in sources():
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in MAY_IMPORT, f"{name_of(path)}: import weft.{name}, not {name}"


def test_the_foundation_stands_on_nothing() -> None:
    for module in FOUNDATION:
        for name in imports(ROOT / "weft" / f"{module}.py"):
            top, _, rest = name.partition(".")
            assert top != "weft" or rest in FOUNDATION, f"weft/{module}.py imports {name}"


@pytest.mark.parametrize("folder", PURE)
def test_the_core_is_pure(folder: str) -> None:
    paths = [path for path in sources() if name_of(path).startswith(folder + "/")]
    assert paths
    for path in paths:
        impure = {name for name in imports(path) if name.split(".")[0] in IMPURE}
        assert not impure, f"{name_of(path)} imports {', '.join(sorted(impure))}"


#: Pickles arguments and results of tasks whose two sides ask for it.
PICKLING = "tasks/pickle_codec.py"
PICKLERS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal"}


def test_one_module_pickles() -> None:
    for path in sources():
        found = PICKLERS & set(imports(path))
        allowed = {"cloudpickle"} if name_of(path) == PICKLING else set()
        assert found == allowed, f"{name_of(path)} imports {found}"


def test_the_pickler_is_imported_by_its_first_use() -> None:
    path = next(path for path in sources() if name_of(path) == PICKLING)
    for node in tree_of(path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert "cloudpickle" not in ast.unparse(node)


# --- size limits ------------------------------------------------------------------------------


def test_a_public_class_name_is_defined_once() -> None:
    found: dict[str, list[str]] = {}
    for path in sources():
        if path.relative_to(ROOT).parts[0] not in {*MAY_IMPORT, "weft"}:
            continue
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(name_of(path))
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}


def test_a_module_is_named_by_a_noun_and_once_in_its_package() -> None:
    """A module is named by a noun that is unique in its package.

    A participle (`popping`) names an action, not the content of a module. Modules of the command
    line are named after their commands, so each of its folders counts as a package.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for path in sources():
        (package, *folders), stem = path.relative_to(ROOT).parts, path.stem
        if package not in {*MAY_IMPORT, "weft"} or stem in ("__init__", "__main__"):
            continue
        if folders[0] == "cli":
            package = "/".join([package, *folders[:-1]])
        found.setdefault((package, stem), []).append(name_of(path))
        assert not stem.endswith("ing") or stem in NOUNS, f"{name_of(path)}: name what it holds"
    assert {key: paths for key, paths in found.items() if len(paths) > 1} == {}


def test_files_are_short() -> None:
    for path in sources():
        lines = path.read_text(encoding="utf-8").count("\n")
        assert lines <= FILE_LINES_MAX, f"{name_of(path)} has {lines} lines"


def test_ruff_bounds_the_complexity_of_functions() -> None:
    """Ruff (C901) measures; this test keeps the limit, and allows no exception."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lint = project["tool"]["ruff"]["lint"]
    assert "C901" in lint["select"]
    assert lint["mccabe"]["max-complexity"] <= COMPLEXITY_MAX
    assert "C901" not in lint["ignore"]
    assert "per-file-ignores" not in lint, "an exception stands at its function, with its reason"
    excepted = re.compile(r"# noqa:.*\bC901\b")
    for path in sources():
        text = path.read_text(encoding="utf-8")
        assert "# ruff" + ": noqa" not in text, f"{name_of(path)} is excepted as a whole"
        found = excepted.search(text)
        assert found is None, f"{name_of(path)} has an exception: split the function instead"


def test_functions_are_short() -> None:
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                where = f"{name_of(path)}:{node.lineno} {node.name}"
                assert lines <= FUNCTION_LINES_MAX, f"{where} has {lines} lines"


def test_lines_are_short() -> None:
    pragma = re.compile(r"\s+# (?:type: ignore|noqa|fmt:).*$")
    for path in sources():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            width = len(pragma.sub("", line))
            assert width <= LINE_MAX, f"{name_of(path)}:{number} is {width} wide"


# --- names and places -------------------------------------------------------------------------


def test_a_file_is_named_after_what_is_in_it() -> None:
    for path in sources():
        parts = {*path.relative_to(ROOT).parts[:-1], path.stem}
        assert not parts & BANNED_NAMES, f"{name_of(path)}: name the noun that is in it"


def test_a_module_opens_with_what_it_is_about() -> None:
    for path in sources():
        if path.relative_to(ROOT).parts[0] != "examples":  # examples are printed in the README
            assert ast.get_docstring(tree_of(path)), f"{name_of(path)} has no docstring"


@pytest.mark.parametrize("what", NOT_OURS)
def test_the_tree_speaks_of_itself_alone(what: str) -> None:
    pattern = re.compile(NOT_OURS[what])
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found = pattern.search(text)
        assert found is None, f"{name_of(path)} has {what}: {found and found.group()!r}"


def test_the_patterns_find_what_they_are_for() -> None:
    paths, registries = (re.compile(pattern) for pattern in NOT_OURS.values())
    for word in ("home", "Users", "root"):
        assert paths.search(f"see /{word}/someone/weft")
    assert not paths.search("a path such as /var/lib/weft, or tests/work/x")
    assert registries.search("https://registry" + ".example.com/x")
    assert registries.search("--index" + "-url https://example.com")
