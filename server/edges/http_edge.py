"""The HTTP edge: /metrics, /healthz and /readyz, in a thread with its own event loop.

The edge has its own thread so that health checks are still answered when the other threads hang.
Requests are GET or HEAD without a body, and each connection serves one request. Python's
``http.server`` would take a thread per connection and has no limit on the time to receive a request
head; here `HEAD_BYTES_MAX` and `HEAD_S_MAX` bound the whole head, and a connection above
`CONNECTIONS_MAX` is closed unread.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from http import HTTPStatus
from http.client import HTTPException, HTTPMessage, parse_headers
from typing import Any, Final, NamedTuple

from weft.errors import PermissionDenied, Unauthenticated, Unavailable
from weft.limits import KIB
from weft.server.address import Address
from weft.server.observability.health import Health, HealthVerdict
from weft.server.observability.log import fields
from weft.server.observability.metrics import Metrics
from weft.server.security.access import Access
from weft.server.security.tls import LOOK_S, Certificates

log = logging.getLogger(__name__)

#: The complete request of a scraper is about 500 bytes.
HEAD_BYTES_MAX: Final = 16 * KIB
HEAD_S_MAX: Final = 5.0
#: Time to write the response; a slower reader counts as gone.
ANSWER_S_MAX: Final = 10.0
#: Prometheus holds one connection at a time, an orchestrator another.
CONNECTIONS_MAX: Final = 64
_TEXT: Final = "text/plain; charset=utf-8"


class HttpResponse(NamedTuple):
    status: HTTPStatus
    body: bytes
    content_type: str = _TEXT
    allow: str = ""


Page = Callable[[HTTPMessage], Awaitable[HttpResponse]]


class HttpEdge:
    """Started once. `stop` may be called from any thread except the edge's own."""

    def __init__(
        self,
        address: Address,
        health: Health,
        metrics: Metrics,
        access: Access | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self._address = address
        self._access = access
        self._certificates = certificates
        self._health = health
        self._metrics = metrics
        #: Path -> page. A dashboard adds its pages here.
        self.pages: dict[str, Page] = {
            "/": self._index,
            "/metrics": self._figures,
            "/healthz": lambda head: _verdict(health.live()),
            "/readyz": lambda head: _verdict(health.ready()),
        }
        self._open = 0
        self._bound: Future[Address] = Future()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> Address:
        """Starts serving and returns the bound address. Raises Unavailable if listening fails."""
        self._thread.start()
        return self._bound.result()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._bound.done():
                log.exception("the HTTP edge failed")
                raise
            self._bound.set_exception(error)

    async def _main(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        host, port = self._address
        try:
            server = await asyncio.start_server(
                self._serve, host, port, limit=HEAD_BYTES_MAX, **self._tls_options()
            )
        except OSError as error:
            raise Unavailable(
                f"cannot listen on {self._address} for HTTP: {_reason(error)}. Stop the process "
                "that uses the port, or set another address with --http-listen"
            ) from None
        async with server:
            bound = Address(host, server.sockets[0].getsockname()[1])
            log.info("HTTP listens", extra=fields(address=str(bound)))
            self._bound.set_result(bound)
            watch = asyncio.create_task(self._watch_certificates())
            await self._stopping.wait()
            watch.cancel()
        # asyncio.run cancels the remaining connections.

    def _tls_options(self) -> dict[str, Any]:
        if self._certificates is None:
            return {}
        return {"ssl": self._certificates.http, "ssl_handshake_timeout": HEAD_S_MAX}

    async def _watch_certificates(self) -> None:
        """Reloads changed certificate files; a live TLS context uses them for new connections."""
        while self._certificates is not None:
            await asyncio.sleep(LOOK_S)
            self._certificates.look()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                await self._exchange(reader, writer)
        except (ConnectionError, TimeoutError):
            return  # the reader has gone, or is too slow
        finally:
            self._open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S_MAX):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return  # closed without a request: a port check does that
        except asyncio.LimitOverrunError:
            head = b""
            answer = _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except TimeoutError:
            head = b""
            answer = _refusal(HTTPStatus.REQUEST_TIMEOUT)
        else:
            answer = await self._answer(head)
        writer.write(_encode(answer, body=not head.startswith(b"HEAD ")))
        async with asyncio.timeout(ANSWER_S_MAX):
            await writer.drain()

    async def _answer(self, head: bytes) -> HttpResponse:
        line, _, rest = head.partition(b"\r\n")
        words = line.decode("latin-1").split(" ")
        try:
            method, target, protocol = words
            headers = parse_headers(io.BytesIO(rest))
        except (ValueError, HTTPException):
            return _refusal(HTTPStatus.BAD_REQUEST)
        if not protocol.startswith("HTTP/1."):
            return _refusal(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        page = self.pages.get(target.partition("?")[0])
        if page is None:
            return _refusal(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return _refusal(HTTPStatus.METHOD_NOT_ALLOWED)._replace(allow="GET, HEAD")
        try:
            return await page(headers)
        except Exception:
            log.exception("a page failed", extra=fields(page=target.partition("?")[0]))
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _index(self, head: HTTPMessage) -> HttpResponse:
        return HttpResponse(
            HTTPStatus.OK, "".join(f"{path}\n" for path in sorted(self.pages)).encode()
        )

    async def _figures(self, head: HTTPMessage) -> HttpResponse:
        if self._access is not None:
            try:
                self._access.check_figures(head.get("Authorization", "").removeprefix("Bearer "))
            except Unauthenticated as error:
                return HttpResponse(HTTPStatus.UNAUTHORIZED, f"{error.message}\n".encode())
            except PermissionDenied as error:
                return HttpResponse(HTTPStatus.FORBIDDEN, f"{error.message}\n".encode())
        node_stats = await self._health.node_stats(queues=True)
        if node_stats is None:
            why = f"the node does not answer ({self._health.phase})\n"
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, why.encode())
        content_type, text = self._metrics.render(node_stats, head.get("Accept", ""))
        return HttpResponse(HTTPStatus.OK, text, content_type)


async def _verdict(asked: Awaitable[HealthVerdict]) -> HttpResponse:
    good, why = await asked
    status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
    return HttpResponse(status, f"{why}\n".encode())


def _refusal(status: HTTPStatus) -> HttpResponse:
    return HttpResponse(status, f"{status.phrase}\n".encode())


def _encode(answer: HttpResponse, *, body: bool) -> bytes:
    lines = [
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if answer.status is HTTPStatus.UNAUTHORIZED:
        lines.append("WWW-Authenticate: Bearer")
    if answer.allow:
        lines.append(f"Allow: {answer.allow}")
    head = "\r\n".join(lines) + "\r\n\r\n"
    return head.encode("latin-1") + (answer.body if body else b"")


def _reason(error: OSError) -> str:
    """The operating system's error text, without the sentence that asyncio adds."""
    known = error.errno is not None and error.errno > 0
    return os.strerror(error.errno) if known and error.errno else str(error)
