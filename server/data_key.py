"""The key of the data path: who this node is to its clients.

It follows from the node's secret key (`persistence/keys.py`) and is not that one: Noise wants a key
that nothing else uses, and CURVE has the other. Clients know the public half from the view.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from zmq.utils import z85

from weft.errors import InvalidArgument
from weft.persistence.keys import Keys
from weft.proto import noise
from weft.proto.sealed import KEY_BYTES

_USE: Final = b"weft data path, Noise NK"


class DataKey(NamedTuple):
    secret: bytes
    #: In hexadecimal digits.
    public: str

    def __repr__(self) -> str:
        return f"DataKey({self.public})"


def data_key(keys: Keys) -> DataKey:
    secret = HKDF(SHA256(), KEY_BYTES, salt=None, info=_USE).derive(z85.decode(keys.secret))
    return DataKey(secret, noise.public_of(secret).hex())


def check_public(key: str) -> None:
    """Raises InvalidArgument unless it may stand in a view."""
    if len(key) != 2 * KEY_BYTES or not set(key) <= set("0123456789abcdef"):
        raise InvalidArgument(
            f"data_key must have {2 * KEY_BYTES} hexadecimal digits, unlike {key[:100]!r}"
        )
