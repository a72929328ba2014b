"""Noise_NK_25519_AESGCM_SHA256: the key agreement of the two ends of an encrypted data path.

Noise is a published framework for such protocols (revision 34; the names below are Noise's own).
The client (the initiator) knows the node's static key (K) and has no static key (N). The node's key
comes from the view, over TLS; a token identifies the client. Both ends add an ephemeral key for the
connection, so a key stolen later does not decrypt recorded traffic. The cipher is AES-GCM, because
processors have instructions for AES-GCM, and none for the cipher of ZeroMQ's CURVE.

    <- s                the node's public key, known before
    -> e, es            first message: fails for a client that does not know the node's key
    <- e, ee            second message: proves that the node has the secret key

The bytes exchanged before the handshake go into the prologue: if an attacker changes these bytes,
the first message fails. A changed, dropped, repeated or reordered message fails, too: each message
has its number in the nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from weft.errors import ProtocolError

from .noise_transport import KEY_BYTES, TAG_BYTES

NAME: Final = b"Noise_NK_25519_AESGCM_SHA256"
#: After so many messages, 64 GiB at most, both ends switch to a new key: one AES-GCM key must not
#: encrypt much more than 300 GiB (RFC 8446, section 5.5), which a busy producer sends in half an
#: hour.
REKEY_EVERY: Final = 1 << 20

_nonce: Final = struct.Struct(">4xQ").pack
_REKEY_NONCE: Final = _nonce((1 << 64) - 1)

Bytes = bytes | memoryview


class Cipher:
    """Noise's CipherState: one direction of a connection."""

    __slots__ = ("_aead", "_number", "_rekey_at")

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)
        self._number = 0
        self._rekey_at = REKEY_EVERY

    # Each method takes the next number first, even if the call then fails: no nonce is ever used
    # twice. The code is inlined in each method, because every record passes through here.

    def seal(self, plain: Bytes, bound: bytes | None = None) -> bytes:
        number = self._number
        self._number = number + 1
        if number == self._rekey_at:
            self._rekey()
        return self._aead.encrypt(_nonce(number), plain, bound)

    def seal_into(self, plain: Bytes, room: memoryview) -> None:
        """Encrypts `plain` into `room`, which is longer than `plain` by the tag."""
        number = self._number
        self._number = number + 1
        if number == self._rekey_at:
            self._rekey()
        self._aead.encrypt_into(_nonce(number), plain, None, room)

    def open(self, sealed: Bytes, bound: bytes | None = None) -> bytes:
        number = self._number
        self._number = number + 1
        if number == self._rekey_at:
            self._rekey()
        try:
            return self._aead.decrypt(_nonce(number), sealed, bound)
        except InvalidTag:
            raise _refusal() from None

    def open_into(self, sealed: Bytes, room: memoryview) -> None:
        """Decrypts `sealed` into `room`, which is exactly as long as the plaintext."""
        number = self._number
        self._number = number + 1
        if number == self._rekey_at:
            self._rekey()
        try:
            self._aead.decrypt_into(_nonce(number), sealed, None, room)
        except InvalidTag:
            raise _refusal() from None

    def _rekey(self) -> None:
        fresh = self._aead.encrypt(_REKEY_NONCE, bytes(KEY_BYTES), None)
        self._aead = AESGCM(fresh[:KEY_BYTES])
        self._rekey_at += REKEY_EVERY


class Handshake:
    """Noise's HandshakeState: of the client, with the node's public key, or of the node.

    Call `say` and `hear` in the pattern's order, once each; then `split`.
    """

    def __init__(
        self,
        prologue: bytes,
        *,
        remote: bytes | None = None,
        own: bytes | None = None,
        ephemeral: bytes | None = None,
    ) -> None:
        """`remote` is the node's public key, `own` the secret key; `ephemeral` is for tests."""
        assert (remote is None) != (own is None)
        self._secret = _secret(own) if own is not None else None
        self._public = self._secret.public_key() if self._secret is not None else _public(remote)
        self._mine = _secret(ephemeral) if ephemeral is not None else X25519PrivateKey.generate()
        self._theirs: X25519PublicKey | None = None
        # SymmetricState: the name is shorter than a hash, so zeros pad the name.
        self._hash = self._chain = NAME.ljust(hashlib.sha256().digest_size, b"\0")
        self._cipher: Cipher | None = None
        self._mix_hash(prologue)
        self._mix_hash(self._public.public_bytes_raw())

    def say(self) -> bytes:
        """The handshake message to send."""
        mine = self._mine.public_key().public_bytes_raw()
        self._mix_hash(mine)
        if self._secret is None:
            self._mix_key(self._mine, self._public)  # es
        else:
            assert self._theirs is not None
            self._mix_key(self._mine, self._theirs)  # ee
        assert self._cipher is not None
        tag = self._cipher.seal(b"", self._hash)
        self._mix_hash(tag)
        return mine + tag

    def hear(self, message: bytes) -> None:
        """Processes the peer's handshake message. Raises ProtocolError."""
        if len(message) != KEY_BYTES + TAG_BYTES:
            raise ProtocolError("a handshake of another length: it is not this protocol")
        self._theirs = _public(message[:KEY_BYTES])
        self._mix_hash(message[:KEY_BYTES])
        self._mix_key(self._secret or self._mine, self._theirs)  # es, or ee
        assert self._cipher is not None
        self._cipher.open(message[KEY_BYTES:], self._hash)
        self._mix_hash(message[KEY_BYTES:])

    def split(self) -> tuple[Cipher, Cipher]:
        """The ciphers for sending and for receiving."""
        there, back = (Cipher(key) for key in _expand(self._chain, b""))
        return (there, back) if self._secret is None else (back, there)

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _mix_key(self, mine: X25519PrivateKey, theirs: X25519PublicKey) -> None:
        try:
            shared = mine.exchange(theirs)
        except ValueError:  # a point of low order: anyone could compute the shared secret
            raise ProtocolError("a handshake with a worthless key") from None
        self._chain, key = _expand(self._chain, shared)
        self._cipher = Cipher(key)


def public_of(secret: bytes) -> bytes:
    return _secret(secret).public_key().public_bytes_raw()


def _secret(key: bytes) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(key)


def _public(key: bytes | None) -> X25519PublicKey:
    assert key is not None
    return X25519PublicKey.from_public_bytes(key)


def _expand(chain: bytes, secret: bytes) -> tuple[bytes, bytes]:
    """HKDF with two outputs, as defined by Noise."""
    between = hmac.digest(chain, secret, "sha256")
    first = hmac.digest(between, b"\x01", "sha256")
    return first, hmac.digest(between, first + b"\x02", "sha256")


def _refusal() -> ProtocolError:
    return ProtocolError("not sealed by the other end: it has another key, or it was changed")
