"""The hash table on the wire: ZHT's verbs.

The rules for every struct of ``wire`` apply: new fields are only added at the end.
"""

from __future__ import annotations

from .request import Answer, Request

# --- requests ---------------------------------------------------------------------------------


class Insert(Request, frozen=True, tag="insert"):
    key: str
    value: bytes


class Lookup(Request, frozen=True, tag="lookup"):
    key: str


class Remove(Request, frozen=True, tag="remove"):
    key: str


class Append(Request, frozen=True, tag="append"):
    key: str
    value: bytes


class CompareAndSwap(Request, frozen=True, tag="compare_and_swap"):
    """`old` nil: only if the key is absent; `new` nil: remove the key."""

    key: str
    old: bytes | None
    new: bytes | None


# --- answers ----------------------------------------------------------------------------------


class Value(Answer, frozen=True, tag="value"):
    value: bytes | None


class Swapped(Answer, frozen=True, tag="swapped"):
    swapped: bool
    #: The value before the call; nil when the key was absent.
    current: bytes | None
