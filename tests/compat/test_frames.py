"""Frames of earlier versions are readable, and present frames begin with the recorded fields.

A field may be added at the end of a struct. No field moves, changes its type or goes away, and no
tag changes: a cluster is upgraded node by node, and clients are upgraded later.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest

from weft.dht import messages
from weft.proto import wire

from .record import FOLDER

_DECODERS: Final[dict[str, Any]] = {
    "request": wire.decode_call,
    "answer": wire.decode_reply,
    "message": messages.decode,
}


def _recorded() -> list[tuple[str, str, str, bytes]]:
    rows = []
    for path in sorted(FOLDER.glob("*/frames.json")):
        for kind, frames in json.loads(path.read_text(encoding="ascii")).items():
            rows += [(_version(path), kind, tag, bytes.fromhex(f)) for tag, f in frames.items()]
    return rows


def _version(path: Path) -> str:
    return path.parent.name


def _begins_with(new: Any, old: Any) -> bool:
    """True if `new` is `old` with nothing changed but array elements added at the end."""
    if isinstance(old, list):
        return (
            isinstance(new, list)
            and len(new) >= len(old)
            and all(_begins_with(n, o) for n, o in zip(new, old, strict=False))
        )
    if isinstance(old, dict):
        return isinstance(new, dict) and old.keys() == new.keys() and all(
            _begins_with(new[key], old[key]) for key in old
        )  # fmt: skip
    return type(new) is type(old) and bool(new == old)


@pytest.mark.parametrize(
    ("kind", "frame"),
    [pytest.param(k, f, id=f"{v}-{k}-{tag}") for v, k, tag, f in _recorded()],
)
def test_an_old_frame_is_read_and_written_again_with_its_bytes_in_place(
    kind: str, frame: bytes
) -> None:
    value = _DECODERS[kind](frame)
    new = msgpack.unpackb(wire.encode(value), strict_map_key=False)
    assert _begins_with(new, msgpack.unpackb(frame, strict_map_key=False))


def test_the_recording_covers_every_version_zero_one_verb() -> None:
    kinds = {(kind, tag) for version, kind, tag, _ in _recorded() if version == "0.1.0"}
    assert len(kinds) == 55 + 27 + 23
