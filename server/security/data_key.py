"""The key of the data path: the node's identity towards clients.

The data key is derived from the node's secret key (`persistence/node_keys.py`) and differs from the
secret key: Noise needs a key without another use, and CURVE uses the secret key. Clients read the
public half from the view.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from zmq.utils import z85

from weft.errors import InvalidArgument
from weft.persistence.node_keys import Keys
from weft.transport import noise
from weft.transport.noise_transport import KEY_BYTES

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
    """Raises InvalidArgument unless the key is valid in a view."""
    if len(key) != 2 * KEY_BYTES or not set(key) <= set("0123456789abcdef"):
        raise InvalidArgument(
            f"data_key must have {2 * KEY_BYTES} hexadecimal digits, unlike {key[:100]!r}"
        )
