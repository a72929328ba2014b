"""The listening sockets of the client edge, and the TCP options of their connections."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Final

from weft.errors import WeftError
from weft.server.address import Address

from .edge import BACKLOG
from .edge_connection import EdgeConnection

#: TCP keepalive of a silent connection.
KEEPALIVE_IDLE_S: Final = 5
_KEEPALIVE_EVERY_S: Final = 2
_KEEPALIVE_PROBES: Final = 3
#: A peer that has acknowledged nothing for so long is gone; no pop waits longer either. On Linux
#: this value also overrides the keepalive settings for silent connections.
UNTAKEN_MS_MAX: Final = 60_000
#: The kernel has no resources for another connection: pending connections wait in the backlog.
NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

#: Takes an accepted socket, its peer's host and a connection number. Returns the connection, or
#: None if the connection comes later (`SocketEdge.add`) or not at all.
Accept = Callable[[socket.socket, str, int], EdgeConnection | None]


class Listener:
    def __init__(self, made: socket.socket, accept: Accept, connections_max: int) -> None:
        self.socket = made
        self.accept = accept
        self.connections_max = connections_max
        #: Connections of this listener that are open.
        self.open = 0
        #: True while the epoll watches the socket.
        self.watched = True


def listen(address: Address, cannot: Callable[[Address, str], WeftError]) -> socket.socket:
    """Opens a listening socket; accepted connections inherit the options set here.

    Raises the error that `cannot` makes of the address and the reason.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_NODELAY, 1),
            (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, _KEEPALIVE_EVERY_S),
            (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
            (socket.TCP_USER_TIMEOUT, UNTAKEN_MS_MAX),
        ):
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        host = "0.0.0.0" if address.host == "*" else address.host
        where = socket.getaddrinfo(host, address.port, family, socket.SOCK_STREAM)[0][4]
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise cannot(address, error.strerror or str(error)) from None
    return listener
