"""What a replica persists about itself, in the same synced write as what it speaks of."""

from __future__ import annotations

import msgspec


class Meta(msgspec.Struct, array_like=True, frozen=True):
    """What a replica persists about itself. Fields are only ever added at the end."""

    promised: int = 0
    base: int = 0
    base_epoch: int = 0
    applied: int = 0
    #: The state is being installed and is not whole.
    installing: bool = False


encode_meta = msgspec.msgpack.Encoder().encode
decode_meta = msgspec.msgpack.Decoder(Meta).decode
