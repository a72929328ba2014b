"""The peer edge: ZeroMQ between nodes, always encrypted, used by the node's thread alone.

One ROUTER hears all peers; for each peer one DEALER speaks to it. Nothing is ever answered on the
ROUTER: messages between nodes go one way, may be lost, and are said again by the core. So a full
pipe, an absent peer and a frame that is not ours are all the same: dropped, counted, never fatal.

Who sent a message is the key of the connection it came by (``doorkeeper``), and a frame that names
a node must have come by the key that the view gives for that node. Routing ids mean nothing here.

A round's messages for one peer are one multipart message: a header, then an array of them all. A
frame costs ten times what a small message in it does; only what is too large for one frame is taken
apart, message by message.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
import zmq
from zmq.utils import z85

from weft.dht.messages import AnyMessage, Ping, encode
from weft.errors import InvalidArgument, Unavailable
from weft.limits import BATCH_BYTES_MAX, MIB
from weft.persistence.keys import Keys
from weft.proto.wire import MALFORMED

from .address import Address
from .doorkeeper import DOMAIN, Doorkeeper
from .edge import ROUND_BYTES_MAX, ROUND_MESSAGES_MAX
from .log import fields

log = logging.getLogger(__name__)

#: Raised when an older node could misread a frame; others are dropped.
PEER_VERSION: Final = 1
#: One message of the core: some entries of a log, each a batch at most.
PEER_FRAME_BYTES_MAX: Final = 4 * BATCH_BYTES_MAX + MIB
#: Rounds that may wait for a peer, and for us from one; together with the bytes on the way they
#: bound what a peer that does not read can pin.
_PEER_ROUNDS_MAX: Final = 256
PEER_BYTES_MAX: Final = 2 * PEER_FRAME_BYTES_MAX
#: Smaller rounds are not counted: as many as may wait are no more than this allows.
_COUNTED_BYTES_MIN: Final = PEER_BYTES_MAX // _PEER_ROUNDS_MAX
_HEARTBEAT_MS: Final = 1000
_READABLE: Final = int(zmq.POLLIN)
_SILENCE_MS: Final = 2 * _HEARTBEAT_MS
#: A peer behind a cut would otherwise be tried by TCP's own clock, which takes minutes.
_CONNECT_MS: Final = 1000
_HANDSHAKE_MS: Final = 2000
_RECONNECT_MS: Final = 50
_RECONNECT_MS_MAX: Final = 500
#: ZeroMQ gives a connection up for good after some failed handshakes: a peer that could not be
#: reached for so long gets a new socket.
_STUCK_S: Final = 3.0


class _Header(msgspec.Struct, array_like=True, frozen=True):
    """The first frame. Fields are only ever added at the end, with a default."""

    version: int
    cluster: str
    node: str


class Peer(NamedTuple):
    """Where a node listens for its peers, HOST:PORT, and its public key, Z85."""

    address: str
    key: str


class _Line:
    """The way to one peer."""

    def __init__(self, peer: Peer, socket: zmq.Socket[bytes]) -> None:
        self.peer = peer
        self.socket = socket
        self.refused_since: float | None = None
        #: Large rounds that ZeroMQ still holds.
        self.on_way: list[tuple[zmq.MessageTracker, int]] = []

    def has_room(self, size: int) -> bool:
        """One round always has, however large: it would have none later either."""
        self.on_way = [each for each in self.on_way if not each[0].done]
        held = sum(bytes_ for _, bytes_ in self.on_way)
        return not held or held + size <= PEER_BYTES_MAX


_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(_Header).decode
_decode_messages = msgspec.msgpack.Decoder(list[AnyMessage]).decode


def check_peer(address: str, key: str) -> Peer:
    """A peer as it may stand in a view; raises InvalidArgument."""
    where = Address.parse(address, "peer")
    if not where.port:
        raise InvalidArgument(f"peer must name a port, not {address!r}")
    try:
        z85.decode(key.encode())
        sound = len(key) == 40
    except (KeyError, ValueError, TypeError):
        sound = False
    if not sound:
        raise InvalidArgument(f"key must be a CURVE key of 40 characters in Z85, not {key[:50]!r}")
    return Peer(address, key)


class PeerEdge:
    def __init__(self, address: Address, keys: Keys, cluster: str, node: str) -> None:
        self._keys = keys
        self._cluster = cluster
        self._node = node
        self._header = _encode_header(_Header(PEER_VERSION, cluster, node))
        self._key_of: dict[str, str] = {}
        self._lines: dict[str, _Line] = {}
        #: What was dropped, by reason.
        self.dropped: Counter[str] = Counter()
        #: What was sent.
        self.messages = self.pings = self.bytes = 0
        self._context = zmq.Context(io_threads=1)
        self._doorkeeper = Doorkeeper(self._context)
        self.socket = self._listen(address)
        self.fd = int(self.socket.getsockopt(zmq.FD))
        self._silent = False
        endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = Address(address.host, int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1]))

    # --- who there is ---------------------------------------------------------------------

    def know(self, peers: Mapping[str, tuple[str, str]]) -> None:
        """Node id -> (address, public key), as the view has them; all others are strangers."""
        known = {node: Peer(*peer) for node, peer in peers.items() if node != self._node}
        self._key_of = {node: peer.key for node, peer in known.items()}
        self._doorkeeper.allow(self._key_of.values())
        for node in [node for node, line in self._lines.items() if known.get(node) != line.peer]:
            self._lines.pop(node).socket.close()
        for node in known.keys() - self._lines.keys():
            self._connect(node, known[node])

    def _connect(self, node: str, peer: Peer) -> None:
        try:
            check_peer(*peer)
            socket = self._speak(peer)
        except (InvalidArgument, zmq.ZMQError) as error:
            log.error("peer cannot be reached", extra=fields(peer=node, error=str(error)))
            return
        self._lines[node] = _Line(peer, socket)

    # --- a round --------------------------------------------------------------------------

    def pending(self) -> bool:
        """Whether something is there that the descriptor need not tell of.

        It tells of all that comes after a look that found nothing, until something is received:
        to look costs two calls of the kernel.
        """
        if self._silent:
            return False
        self._silent = not int(self.socket.getsockopt(zmq.EVENTS)) & _READABLE
        return not self._silent

    def receive(self) -> list[tuple[str, list[AnyMessage]]]:
        """What peers have said, up to a round's worth."""
        self._silent = False
        received: list[tuple[str, list[AnyMessage]]] = []
        size = 0
        for _ in range(ROUND_MESSAGES_MAX):
            if size >= ROUND_BYTES_MAX:
                break
            try:
                # Not copied: only a Frame knows by which connection it came.
                _, *frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                break
            size += sum(map(len, frames))
            sender = self._sender(frames)
            if sender is not None:
                try:
                    messages = [
                        message
                        for frame in frames[1:]
                        for message in _decode_messages(frame.buffer)
                    ]
                except MALFORMED as error:
                    self._drop("malformed message", sender=sender, error=str(error))
                else:
                    received.append((sender, messages))
            if not self.pending():  # cheaper than Again
                break
        return received

    def _sender(self, frames: Sequence[zmq.Frame]) -> str | None:
        """Who sent this, if it is somebody who may say what he says he is."""
        if not frames:
            self._drop("no header")
            return None
        try:
            header = _decode_header(frames[0].buffer)
        except MALFORMED as error:
            self._drop("malformed header", error=str(error))
            return None
        key = _user_id(frames[0])
        if header.version != PEER_VERSION:
            self._drop("other version", sender=header.node, version=header.version)
        elif header.cluster != self._cluster:
            self._drop("other cluster", sender=header.node, cluster=header.cluster)
        elif header.node not in self._key_of:
            self._drop("not in the view", sender=header.node)
        elif key is None or key != self._key_of[header.node]:
            self._drop("not its key", sender=header.node)
        else:
            return header.node
        return None

    def send(self, to: str, messages: Sequence[AnyMessage]) -> bool:
        """Whether it is on its way; if not, the core says it again."""
        line = self._lines.get(to)
        if line is None or not messages:
            return False
        frames = [self._header, *self._packed(to, messages)]
        sizes = [len(frame) for frame in frames]
        if len(frames) == 1:
            return False
        counted = sum(sizes) >= _COUNTED_BYTES_MIN
        if counted:
            if not line.has_room(sum(sizes)):
                return False
            # Frames leave in order: when the last one is freed, all have left.
            frames[-1] = last = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
        try:
            line.socket.send_multipart(frames, zmq.NOBLOCK, copy=not counted)
        except zmq.Again:
            self._refused(to, line)
            return False
        line.refused_since = None
        self.messages += 1  # one on the wire, whatever is in it
        self.pings += any(type(message) is Ping for message in messages)
        self.bytes += sum(sizes)
        if counted:
            assert last.tracker is not None
            line.on_way.append((last.tracker, sum(sizes)))
        return True

    def _packed(self, to: str, messages: Sequence[AnyMessage]) -> list[bytes | zmq.Frame]:
        """The frames that hold these messages; what no peer would take is left out."""
        whole = encode(messages)
        if len(whole) <= PEER_FRAME_BYTES_MAX:
            return [whole]
        single = [encode([message]) for message in messages]
        fit: list[bytes | zmq.Frame] = [one for one in single if len(one) <= PEER_FRAME_BYTES_MAX]
        for _ in range(len(single) - len(fit)):
            self._drop("too large to send", peer=to)
        return fit

    def _refused(self, node: str, line: _Line) -> None:
        """There is no connection, or it is full; after a while it is made anew."""
        now = time.monotonic()
        if line.refused_since is None:
            line.refused_since = now
        elif now - line.refused_since > _STUCK_S:
            log.debug("peer is silent", extra=fields(peer=node, address=line.peer.address))
            line.socket.close()
            del self._lines[node]
            self._connect(node, line.peer)

    def close(self) -> None:
        for line in self._lines.values():
            line.socket.close()
        self._lines.clear()
        self.socket.close()
        self._context.term()
        self._doorkeeper.join()

    # --- sockets --------------------------------------------------------------------------

    def _listen(self, address: Address) -> zmq.Socket[bytes]:
        socket = self._socket(zmq.ROUTER, address.host)
        socket.curve_server = True
        socket.curve_secretkey = self._keys.secret.encode()
        socket.zap_domain = DOMAIN
        # Without its doorkeeper a CURVE server would let everyone in.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        try:
            socket.bind(_endpoint(address))
        except zmq.ZMQError as error:
            self.socket = socket
            self.close()
            raise Unavailable(
                f"cannot listen on {address} for other nodes: {error.strerror}. Stop what is using "
                "it, or give another address with --peer-listen"
            ) from None
        return socket

    def _speak(self, peer: Peer) -> zmq.Socket[bytes]:
        address = Address.parse(peer.address, "peer")
        socket = self._socket(zmq.DEALER, address.host)
        socket.curve_serverkey = peer.key.encode()
        socket.curve_publickey = self._keys.public.encode()
        socket.curve_secretkey = self._keys.secret.encode()
        # Nothing waits for a peer that is not there: what it would find is old by then.
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MS_MAX)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
        socket.connect(_endpoint(address))
        return socket

    def _socket(self, kind: int, host: str) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        for option, value in (
            (zmq.MAXMSGSIZE, PEER_FRAME_BYTES_MAX),
            (zmq.SNDHWM, _PEER_ROUNDS_MAX),
            (zmq.RCVHWM, _PEER_ROUNDS_MAX),
            (zmq.HEARTBEAT_IVL, _HEARTBEAT_MS),
            (zmq.HEARTBEAT_TIMEOUT, _SILENCE_MS),
            (zmq.HANDSHAKE_IVL, _HANDSHAKE_MS),
            (zmq.LINGER, 0),
            (zmq.IPV6, int(":" in host)),
        ):
            socket.setsockopt(option, value)
        socket.copy_threshold = MIB
        return socket

    def _drop(self, why: str, **about: str | int) -> None:
        """Counts it; the log hears of the 1st, 2nd, 4th, 8th, ... so that a flood stays short."""
        self.dropped[why] += 1
        times = self.dropped[why]
        if times & (times - 1) == 0:
            log.warning("peer message dropped", extra=fields(why=why, times=times, **about))


def _endpoint(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"tcp://{host}:{address.port or '*'}"


def _user_id(frame: zmq.Frame) -> str | None:
    """The key by which this frame's connection was let in."""
    try:
        found = frame.get("User-Id")
    except zmq.ZMQError:
        return None
    return found if isinstance(found, str) else None
