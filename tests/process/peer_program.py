"""A peer edge in a separate process: pings all others and prints each received ping."""

from __future__ import annotations

import json
import sys
import time

from weft.dht.messages import Ping
from weft.persistence.node_keys import Keys
from weft.server.address import Address
from weft.server.edges.peer_edge import PeerEdge

PING_S = 0.1


def main(node: str, address: str, keys: list[str], peers: dict[str, list[str]]) -> None:
    edge = PeerEdge(Address.parse(address, "peer"), Keys(*keys), "c" * 32, node)
    edge.know({name: (where, key) for name, (where, key) in peers.items()})
    while True:
        for name in peers:
            edge.send(name, [Ping(1)])
        edge.socket.poll(int(PING_S * 1000))
        for sender, _ in edge.receive():
            print(json.dumps({"heard": sender, "at": time.monotonic()}), flush=True)
        time.sleep(PING_S)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(json.loads, sys.argv[3:5]))
