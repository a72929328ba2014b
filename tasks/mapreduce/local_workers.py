"""Worker processes that a run starts for itself, and their end with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from weft.errors import JobFailed, UsageError
from weft.tasks.app import App

#: The workers end with the driver, also if the driver is killed.
_RUN: Final = (
    "import sys; from weft.tasks.child_process import end_with; end_with(int(sys.argv.pop(1))); "
    "from weft.client.cli.main import main; main()"
)
_END_S: Final = 15.0


class WorkerLocation:
    """Where a worker process finds the app of a job: the module that defines the job."""

    def __init__(self, app: App, module: str) -> None:
        self._app = app
        self._module = module

    def find(self) -> tuple[str, str]:
        """MODULE:APP, and the folder that Python needs to import it. Raises UsageError."""
        module = sys.modules.get(self._module)
        names = [name for name, each in vars(module).items() if each is self._app] if module else []
        if module is None or not names:
            raise UsageError(
                f"the app {self._app.name} must be a name at the level of the module "
                f"{self._module} that defines the job: worker processes import it there"
            )
        name = self._module if self._module != "__main__" else _main_name(module)
        return f"{name}:{names[0]}", _folder(module, name)

    def folder(self) -> str:
        """The folder that Python needs to import the module; "" for an interactive session."""
        module = sys.modules.get(self._module)
        if module is None:
            return ""
        file = getattr(module, "__file__", None)
        if self._module == "__main__" and file is not None:
            return str(Path(file).resolve().parent)
        return _folder(module, self._module)


def _main_name(module: ModuleType) -> str:
    spec, file = module.__spec__, getattr(module, "__file__", None)
    if spec is not None:
        return spec.name.removesuffix(".__main__")
    if file is None:
        raise UsageError(
            "a job that is defined in an interactive session has no workers: put app and job into "
            "a module, or pass workers=0 and run the workers yourself"
        )
    return Path(file).stem


def _folder(module: ModuleType, name: str) -> str:
    """The folder above the top package of the module."""
    file = getattr(module, "__file__", None)
    if file is None:
        return ""
    parts = name.count(".") + 1 + (Path(file).name == "__init__.py")
    return str(Path(file).resolve().parents[parts - 1])


class LocalWorkers:
    """`weft worker` for one queue, as a context."""

    def __init__(self, app: App, location: WorkerLocation, count: int, queue: str) -> None:
        self._app = app
        self._location = location
        self._count = count
        self._queue = queue
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LocalWorkers:
        if not self._count:
            return self
        place, folder = self._location.find()
        self._process = subprocess.Popen(
            [
                sys.executable, "-c", _RUN, str(os.getpid()), "worker", place,
                "-c", str(self._count), "-q", self._queue, "--grace", "0", "--log-level", "ERROR",
            ],
            env=self._environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=2,  # what tasks print must not be among the output of a command
        )  # fmt: skip
        return self

    def __exit__(self, *error: object) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def check(self) -> None:
        """Raises JobFailed if the workers have ended by themselves."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise JobFailed(
                f"the workers of the run have ended with exit code {code}: their message is on "
                "standard error"
            )

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def _environment(self, folder: str) -> dict[str, str]:
        found = dict(os.environ)
        servers = self._app.servers
        if servers is not None:
            found["WEFT_SERVERS"] = servers
        paths = [folder, found.get("PYTHONPATH", "")]
        found["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
        return found
