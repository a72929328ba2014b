"""The TCP socket of a connection: its address, its options, and its connect in steps."""

from __future__ import annotations

import errno
import select
import socket
import struct
from typing import Final

from weft.errors import InvalidArgument

from .connection import SILENT_EVERY_MS, SILENT_MS_MAX, UNTAKEN_MS_MAX

_OPTIONS: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_EVERY_MS // 1000),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_EVERY_MS // 1000),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, SILENT_MS_MAX // SILENT_EVERY_MS),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS_MAX),
)


def parse_address(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidArgument(f"cannot connect to the address {address!r}: give HOST:PORT")
    return host, int(port)


def begin_connect(address: str, port: int) -> socket.socket | None:
    """Returns a socket that is connecting; None if the attempt failed at once."""
    try:
        made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    except OSError:  # too many open files: the next try may succeed
        return None
    made.setblocking(False)
    for level, option, value in _OPTIONS:
        made.setsockopt(level, option, value)
    if made.connect_ex((address, port)) in (0, errno.EINPROGRESS):
        return made
    made.close()
    return None


def has_connected(connecting: socket.socket) -> bool | None:
    """Returns True when connected, None while the attempt is under way, False if it failed."""
    ready = select.poll()
    ready.register(connecting, select.POLLOUT)
    if not ready.poll(0):
        return None
    failed = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return not failed and not _meets_itself(connecting)


def _meets_itself(connected: socket.socket) -> bool:
    """True for a self-connect: the kernel may choose the target port as source port."""
    try:
        return bool(connected.getsockname() == connected.getpeername())
    except OSError:
        return True  # already disconnected


def block_for(connected: socket.socket, milliseconds: int) -> None:
    """Makes reads block for that time at most; non-blocking calls pass a flag."""
    connected.setblocking(True)
    seconds, millis = divmod(milliseconds, 1000)
    timeval = struct.pack("@ll", seconds, millis * 1000)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval)
