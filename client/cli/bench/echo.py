"""The echo process of the raw round trip: a ROUTER socket that returns every message."""

from __future__ import annotations

import zmq

from .child import say


def main() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        say({"port": socket.bind_to_random_port("tcp://127.0.0.1")})
        while True:
            socket.send_multipart(socket.recv_multipart())


if __name__ == "__main__":
    main()
