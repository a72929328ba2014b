"""The Huffman code of HPACK (RFC 7541, section 5.2 and appendix B), decoding only.

The code is canonical: sorted by (length, symbol), codes are consecutive numbers. So the lengths
alone define the code. Decoding is a state machine that takes four bits a step: no symbol is shorter
than five bits, so a step yields at most one symbol, and the table has 256 x 16 entries.

The encoder of Weft writes plain strings: every peer must accept them, and its few fields are sent
as table indexes.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ProtocolError

#: The code lengths of the symbols 0 to 255, one byte each.
_LENGTHS: Final = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c"
    "1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c"
    "060a0a0c0d06080b0a0a080b08060606"
    "0505050606060606060607080f060c0a"
    "0d060707070707070707070707070707"
    "07070707070707070807080d130d0e06"
    "0f050605060506060605070706060605"
    "06070605050607070707070f0b0e0d1c"
    "14161414161616171617171717171817"
    "18181617181717171715161716171718"
    "16151416161717151716161815161717"
    "15151615171617171416161617161617"
    "1a1a1413161716191a1a1a1b1b1a1819"
    "13151a1b1b1a1b1815151a1a1c1b1b1b"
    "14181415161515171616191918181a17"
    "1a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a"
)
#: The end-of-string symbol. A peer must not send it: padding is a prefix of its code, all ones.
_EOS: Final = 256
_EOS_LENGTH: Final = 30
#: Longer padding than seven bits would be a whole byte without meaning.
_PADDING_BITS_MAX: Final = 7

#: A step's result: the next state (already shifted for the next step) and the symbol, if any.
_Step = tuple[int, int]
_NO_SYMBOL: Final = -1
_BAD: Final[_Step] = (-1, _NO_SYMBOL)


def codes() -> list[tuple[int, int]]:
    """(code, length) of each symbol, the end-of-string symbol last."""
    lengths = [*_LENGTHS, _EOS_LENGTH]
    found = [(0, 0)] * len(lengths)
    code = last = 0
    for length, symbol in sorted((length, symbol) for symbol, length in enumerate(lengths)):
        code <<= length - last
        last = length
        found[symbol] = code, length
        code += 1
    return found


def _tree() -> list[list[int]]:
    """Inner nodes with two children each: the number of an inner node, or -1 - symbol."""
    nodes = [[0, 0]]
    for symbol, (code, length) in enumerate(codes()):
        node = 0
        for bit in range(length - 1, 0, -1):
            side = code >> bit & 1
            if not nodes[node][side]:
                nodes.append([0, 0])
                nodes[node][side] = len(nodes) - 1
            node = nodes[node][side]
        nodes[node][code & 1] = -1 - symbol
    return nodes


def _steps(nodes: list[list[int]]) -> list[_Step]:
    """The step for each state and each four bits, at the index `state << 4 | bits`."""
    steps = []
    for state in range(len(nodes)):
        for bits in range(16):
            node, symbol = state, _NO_SYMBOL
            for shift in (3, 2, 1, 0):
                node = nodes[node][bits >> shift & 1]
                if node < 0:
                    symbol, node = -1 - node, 0
            steps.append(_BAD if symbol == _EOS else (node << 4, symbol))
    return steps


def _ends(nodes: list[list[int]]) -> frozenset[int]:
    """The states in which a string may end: only ones since the last symbol, at most seven."""
    node, ends = 0, set()
    for _ in range(_PADDING_BITS_MAX + 1):
        ends.add(node << 4)
        node = nodes[node][1]
    return frozenset(ends)


_NODES: Final = _tree()
_STEPS: Final = _steps(_NODES)
_ENDS: Final = _ends(_NODES)


def decode(coded: bytes) -> bytes:
    """Decodes a string. Raises ProtocolError for an invalid code or invalid padding."""
    known, state = _KNOWN, 0
    decoded = b""
    for byte in coded:
        state, symbols = known.get(state << 4 | byte) or _two_steps(state, byte)
        if state < 0:
            break
        decoded += symbols
    if state not in _ENDS:
        raise ProtocolError("a header string is not a Huffman code")
    return decoded


#: The state after a whole byte, and its symbols, by `state << 4 | byte`: header strings have few
#: different bytes. The limit bounds the memory under a peer that sends all of them.
_KNOWN: Final[dict[int, tuple[int, bytes]]] = {}
_KNOWN_MAX: Final = 8192


def _two_steps(state: int, byte: int) -> tuple[int, bytes]:
    first, high = _STEPS[state | byte >> 4]
    last, low = _BAD if first < 0 else _STEPS[first | byte & 15]
    found = last, bytes(symbol for symbol in (high, low) if symbol >= 0)
    if len(_KNOWN) < _KNOWN_MAX:
        _KNOWN[state << 4 | byte] = found
    return found
