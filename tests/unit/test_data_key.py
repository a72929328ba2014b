"""The data path's key: different from the node's key, and stable."""

from __future__ import annotations

import pytest
from zmq.utils import z85

from weft.errors import InvalidArgument
from weft.persistence.node_keys import make_keys
from weft.server.security.data_key import check_public, data_key
from weft.transport import noise


def test_it_follows_from_the_nodes_key_and_is_not_that() -> None:
    keys, others = make_keys(), make_keys()
    made = data_key(keys)
    assert bytes.fromhex(made.public) == noise.public_of(made.secret)
    assert made == data_key(keys)
    assert made != data_key(others)
    assert made.secret != z85.decode(keys.secret)
    assert made.secret.hex() not in repr(made)


def test_what_may_stand_in_a_view() -> None:
    check_public(data_key(make_keys()).public)
    for wrong in ("", "00", "g" * 64, "A" * 64, "0" * 66):
        with pytest.raises(InvalidArgument, match="64 hexadecimal digits"):
            check_public(wrong)
