"""A small HTTP server for Prometheus: GET /metrics, in a thread of a worker or a provisioner.

Without a name for the host, only this machine reaches it. The answer has no data of tasks: names
and counts only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

from weft.errors import InvalidArgument, WeftError

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: A client that sends no request holds its thread no longer.
_CLIENT_S: Final = 10.0
LOCAL: Final = "127.0.0.1"


class MetricsEndpoint:
    """Use it in a `with`; `port` is the bound one."""

    def __init__(self, host: str, port: int, text: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = _CLIENT_S

            def do_GET(self) -> None:
                if self.path.partition("?")[0] != "/metrics":
                    self.send_error(404, "only /metrics is here")
                    return
                try:
                    body = text().encode()
                except WeftError as error:
                    self.send_error(503, error.message.splitlines()[0])
                    return
                self.send_response(200)
                self.send_header("Content-Type", TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Scrapes are not logged."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise InvalidArgument(
                f"metrics cannot be served at {host}:{port}: {error.strerror or error}"
            ) from None
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="weft-metrics", daemon=True
        )
        self._thread.start()

    @classmethod
    def of(cls, place: str | None, text: Callable[[], str]) -> MetricsEndpoint | NoEndpoint:
        """The endpoint at HOST:PORT or PORT, or none. Raises InvalidArgument."""
        if place is None:
            return NoEndpoint()
        return cls(*parse_place(place), text)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class NoEndpoint:
    """No metrics were asked for."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is open."""


def parse_place(place: str) -> tuple[str, int]:
    """Reads HOST:PORT or PORT."""
    host, _, port = place.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidArgument(f"metrics are served at HOST:PORT or PORT, not {place[:100]!r}")
    return host.strip("[]") or LOCAL, int(port)
