"""The peer edge: ZeroMQ between nodes, always encrypted, used by the node's thread only.

One ROUTER receives from all peers; one DEALER per peer sends. The ROUTER never sends: messages
between nodes are one-way, may be lost, and the core resends them. So a full pipe, an absent peer
and a foreign frame all have the same effect: the message is dropped and counted, never fatal.

The CURVE key of the connection authenticates the sender (``security/zap_auth``): a frame naming a
node must arrive under the key that the view has for the node. Routing ids have no meaning here.

The messages of a round for one peer form one multipart message: a header, then an array of all
messages. A frame costs ten times as much as a small message inside; only messages too large for one
frame together are sent as one frame each.
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
from weft.persistence.node_keys import Keys
from weft.proto.wire import MALFORMED
from weft.server.address import Address
from weft.server.observability.log import fields
from weft.server.security.zap_auth import DOMAIN, ZapAuthenticator

from .edge import ROUND_BYTES_MAX, ROUND_MESSAGES_MAX

log = logging.getLogger(__name__)

#: Incremented when an older node could misread a frame; frames of other versions are dropped.
PEER_VERSION: Final = 1
#: One message of the core: some log entries, each at most a batch.
PEER_FRAME_BYTES_MAX: Final = 4 * BATCH_BYTES_MAX + MIB
#: High-water mark of rounds queued to one peer, and from one peer. Together with the bytes in
#: flight the mark bounds the memory pinned by a peer that does not read.
_PEER_ROUNDS_MAX: Final = 256
PEER_BYTES_MAX: Final = 2 * PEER_FRAME_BYTES_MAX
#: Smaller rounds are not counted: the high-water mark keeps them within PEER_BYTES_MAX.
_COUNTED_BYTES_MIN: Final = PEER_BYTES_MAX // _PEER_ROUNDS_MAX
_HEARTBEAT_MS: Final = 1000
_READABLE: Final = int(zmq.POLLIN)
_SILENCE_MS: Final = 2 * _HEARTBEAT_MS
#: Otherwise connecting to an unreachable peer would follow TCP's own timers, which take minutes.
_CONNECT_MS: Final = 1000
_HANDSHAKE_MS: Final = 2000
_RECONNECT_MS: Final = 50
_RECONNECT_MS_MAX: Final = 500
#: ZeroMQ gives up a connection for good after some failed handshakes: a peer refused for so long
#: gets a new socket.
_STUCK_S: Final = 3.0


class _Header(msgspec.Struct, array_like=True, frozen=True):
    """The first frame. New fields go at the end, with a default."""

    version: int
    cluster: str
    node: str


class PeerConnection(NamedTuple):
    """The address at which a node listens for its peers, HOST:PORT, and its public key, Z85."""

    address: str
    key: str


class _Line:
    """The outgoing connection to one peer."""

    def __init__(self, peer: PeerConnection, socket: zmq.Socket[bytes]) -> None:
        self.peer = peer
        self.socket = socket
        self.refused_since: float | None = None
        #: Large rounds still held by ZeroMQ, with their size in bytes.
        self.on_way: list[tuple[zmq.MessageTracker, int]] = []

    def has_room(self, size: int) -> bool:
        """True if the round may be sent; the only round always may, however large."""
        self.on_way = [each for each in self.on_way if not each[0].done]
        held = sum(bytes_ for _, bytes_ in self.on_way)
        return not held or held + size <= PEER_BYTES_MAX


_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(_Header).decode
_decode_messages = msgspec.msgpack.Decoder(list[AnyMessage]).decode


def check_peer(address: str, key: str) -> PeerConnection:
    """Validates a peer for use in a view; raises InvalidArgument."""
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
    return PeerConnection(address, key)


class PeerEdge:
    def __init__(self, address: Address, keys: Keys, cluster: str, node: str) -> None:
        self._keys = keys
        self._cluster = cluster
        self._node = node
        self._header = _encode_header(_Header(PEER_VERSION, cluster, node))
        self._key_of: dict[str, str] = {}
        self._lines: dict[str, _Line] = {}
        #: Dropped messages, by reason.
        self.dropped: Counter[str] = Counter()
        #: Sent: multipart messages, messages with a ping, bytes.
        self.messages = self.pings = self.bytes = 0
        self._context = zmq.Context(io_threads=1)
        self._doorkeeper = ZapAuthenticator(self._context)
        self.socket = self._listen(address)
        self.fd = int(self.socket.getsockopt(zmq.FD))
        #: True if the file descriptor signals every arrival; see `pending`.
        self.silent = False
        endpoint = self.socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.address = Address(address.host, int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1]))

    # --- the view -------------------------------------------------------------------------

    def know(self, peers: Mapping[str, tuple[str, str]]) -> None:
        """Sets node id -> (address, public key) from the view; all other keys are refused."""
        known = {node: PeerConnection(*peer) for node, peer in peers.items() if node != self._node}
        self._key_of = {node: peer.key for node, peer in known.items()}
        self._doorkeeper.allow(self._key_of.values())
        for node in [node for node, line in self._lines.items() if known.get(node) != line.peer]:
            self._lines.pop(node).socket.close()
        for node in known.keys() - self._lines.keys():
            self._connect(node, known[node])

    def _connect(self, node: str, peer: PeerConnection) -> None:
        try:
            check_peer(*peer)
            socket = self._speak(peer)
        except (InvalidArgument, zmq.ZMQError) as error:
            log.error("peer cannot be reached", extra=fields(peer=node, error=str(error)))
            return
        self._lines[node] = _Line(peer, socket)

    # --- a round --------------------------------------------------------------------------

    def pending(self) -> bool:
        """True if messages may be waiting that the file descriptor does not signal.

        After a check that found nothing, the descriptor signals every arrival until the next
        receive. A check costs two system calls.
        """
        if self.silent:
            return False
        self.silent = not int(self.socket.getsockopt(zmq.EVENTS)) & _READABLE
        return not self.silent

    def receive(self) -> list[tuple[str, list[AnyMessage]]]:
        """Receives from peers, up to the limits of one round."""
        self.silent = False
        received: list[tuple[str, list[AnyMessage]]] = []
        size = 0
        for _ in range(ROUND_MESSAGES_MAX):
            if size >= ROUND_BYTES_MAX:
                break
            try:
                # Not copied: only a Frame knows its connection.
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
            if not self.pending():  # cheaper than catching Again
                break
        return received

    def _sender(self, frames: Sequence[zmq.Frame]) -> str | None:
        """The sender's node id; None if the frame is malformed or fails authentication."""
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
        """True if the messages were handed to ZeroMQ; if not, the core resends them."""
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
            # Frames leave in order: once ZeroMQ frees the last frame, all have left.
            frames[-1] = last = zmq.Frame(frames[-1], track=True, copy=False, copy_threshold=0)
        try:
            line.socket.send_multipart(frames, zmq.NOBLOCK, copy=not counted)
        except zmq.Again:
            self._refused(to, line)
            return False
        line.refused_since = None
        self.messages += 1  # one on the wire, however many are inside
        self.pings += any(type(message) is Ping for message in messages)
        self.bytes += sum(sizes)
        if counted:
            assert last.tracker is not None
            line.on_way.append((last.tracker, sum(sizes)))
        return True

    def _packed(self, to: str, messages: Sequence[AnyMessage]) -> list[bytes | zmq.Frame]:
        """Encodes messages into frames; drops messages above the frame limit of every peer."""
        whole = encode(messages)
        if len(whole) <= PEER_FRAME_BYTES_MAX:
            return [whole]
        single = [encode([message]) for message in messages]
        fit: list[bytes | zmq.Frame] = [one for one in single if len(one) <= PEER_FRAME_BYTES_MAX]
        for _ in range(len(single) - len(fit)):
            self._drop("too large to send", peer=to)
        return fit

    def _refused(self, node: str, line: _Line) -> None:
        """Handles a send without a connection or with a full pipe; reconnects after `_STUCK_S`."""
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
        # Without its authenticator a CURVE server would accept every client.
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        try:
            socket.bind(_endpoint(address))
        except zmq.ZMQError as error:
            self.socket = socket
            self.close()
            raise Unavailable(
                f"cannot listen on {address} for other nodes: {error.strerror}. Stop the process "
                "that uses the port, or set another address with --peer-listen"
            ) from None
        return socket

    def _speak(self, peer: PeerConnection) -> zmq.Socket[bytes]:
        address = Address.parse(peer.address, "peer")
        socket = self._socket(zmq.DEALER, address.host)
        socket.curve_serverkey = peer.key.encode()
        socket.curve_publickey = self._keys.public.encode()
        socket.curve_secretkey = self._keys.secret.encode()
        # Queue nothing for an absent peer: queued messages would be stale when the peer returns.
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
        """Counts a drop; logs the 1st, 2nd, 4th, 8th, ... so that a flood stays short."""
        self.dropped[why] += 1
        times = self.dropped[why]
        if times & (times - 1) == 0:
            log.warning("peer message dropped", extra=fields(why=why, times=times, **about))


def _endpoint(address: Address) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"tcp://{host}:{address.port or '*'}"


def _user_id(frame: zmq.Frame) -> str | None:
    """The public key that authenticated the frame's connection."""
    try:
        found = frame.get("User-Id")
    except zmq.ZMQError:
        return None
    return found if isinstance(found, str) else None
