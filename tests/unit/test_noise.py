"""The handshake and its ciphers, against an independent implementation."""

from __future__ import annotations

import os

import pytest
from noise.connection import Keypair, NoiseConnection

from weft.errors import ProtocolError
from weft.transport import noise
from weft.transport.noise import Cipher, Handshake

PROLOGUE = b"before"


def theirs(*, initiator: bool, key: bytes) -> NoiseConnection:
    made = NoiseConnection.from_name(noise.NAME)
    if initiator:
        made.set_as_initiator()
        made.set_keypair_from_public_bytes(Keypair.REMOTE_STATIC, key)
    else:
        made.set_as_responder()
        made.set_keypair_from_private_bytes(Keypair.STATIC, key)
    made.set_prologue(PROLOGUE)
    made.start_handshake()
    return made


def pair(secret: bytes | None = None, prologue: bytes = PROLOGUE) -> tuple[Handshake, Handshake]:
    secret = secret or os.urandom(32)
    caller = Handshake(PROLOGUE, remote=noise.public_of(secret))
    return caller, Handshake(prologue, own=secret)


def shaken() -> tuple[tuple[Cipher, Cipher], tuple[Cipher, Cipher]]:
    caller, called = pair()
    called.hear(caller.say())
    caller.hear(called.say())
    return caller.split(), called.split()


def called_by_another() -> tuple[NoiseConnection, Cipher, Cipher]:
    secret = os.urandom(32)
    other = theirs(initiator=True, key=noise.public_of(secret))
    ours = Handshake(PROLOGUE, own=secret)
    ours.hear(bytes(other.write_message()))
    other.read_message(ours.say())
    say, hear = ours.split()
    return other, say, hear


def test_another_implementation_calls_us() -> None:
    other, say, hear = called_by_another()
    for number in range(300):
        text = os.urandom(number)
        assert hear.open(bytes(other.encrypt(text))) == text
        assert other.decrypt(say.seal(text)) == text


def test_we_call_another_implementation() -> None:
    secret = os.urandom(32)
    other = theirs(initiator=False, key=secret)
    ours = Handshake(PROLOGUE, remote=noise.public_of(secret))
    other.read_message(ours.say())
    ours.hear(bytes(other.write_message()))
    say, hear = ours.split()
    assert other.decrypt(say.seal(b"there")) == b"there"
    assert hear.open(bytes(other.encrypt(b"back"))) == b"back"


def test_a_new_key_after_so_many_messages_as_another_implementation_makes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(noise, "REKEY_EVERY", 4)
    other, say, hear = called_by_another()
    for number in range(10):
        if number and number % 4 == 0:
            other.rekey_outbound_cipher()
            other.rekey_inbound_cipher()
        assert hear.open(bytes(other.encrypt(b"there"))) == b"there"
        assert other.decrypt(say.seal(b"back")) == b"back"


def test_the_same_keys_give_the_same_words() -> None:
    secret, first = os.urandom(32), os.urandom(32)
    remote = noise.public_of(secret)
    said = {Handshake(PROLOGUE, remote=remote, ephemeral=first).say() for _ in range(2)}
    assert len(said) == 1
    assert Handshake(PROLOGUE, remote=remote).say() not in said


def test_who_has_another_key_is_not_heard() -> None:
    caller, _ = pair()
    _, called = pair()
    with pytest.raises(ProtocolError, match="another key"):
        called.hear(caller.say())


def test_who_does_not_have_the_secret_cannot_answer() -> None:
    caller, called = pair()
    called.hear(caller.say())
    another, _ = pair()
    with pytest.raises(ProtocolError, match="another key"):
        another.hear(called.say())  # an answer to another handshake


def test_what_was_said_before_must_be_the_same() -> None:
    caller, called = pair(prologue=b"changed on its way")
    with pytest.raises(ProtocolError):
        called.hear(caller.say())


@pytest.mark.parametrize("place", range(0, 48, 5))
def test_a_changed_handshake_fails(place: int) -> None:
    caller, called = pair()
    said = bytearray(caller.say())
    said[place] ^= 1
    with pytest.raises(ProtocolError):
        called.hear(bytes(said))


@pytest.mark.parametrize("size", [0, 47, 49])
def test_a_handshake_has_one_length(size: int) -> None:
    _, called = pair()
    with pytest.raises(ProtocolError, match="length"):
        called.hear(bytes(size))


def test_a_key_that_makes_no_secret_is_refused() -> None:
    _, called = pair()
    with pytest.raises(ProtocolError, match="worthless"):
        called.hear(bytes(48))


def test_left_out_repeated_moved_changed() -> None:
    for which in ("left out", "repeated", "moved", "changed", "cut"):
        (say, _), (_, hear) = shaken()
        one, two = say.seal(b"one"), say.seal(b"two")
        if which == "repeated":
            assert hear.open(one) == b"one"
        wrong = {
            "left out": two, "repeated": one, "moved": two,
            "changed": one[:-1] + bytes([one[-1] ^ 1]), "cut": one[:-1],
        }[which]  # fmt: skip
        with pytest.raises(ProtocolError):
            hear.open(wrong)


def test_what_is_said_one_way_is_not_heard_the_other_way() -> None:
    (say, _), (back, _) = shaken()
    assert say.seal(b"x") != back.seal(b"x")


def test_into_its_place() -> None:
    (say, _), (_, hear) = shaken()
    room = bytearray(5)
    hear.open_into(say.seal(b"12345"), memoryview(room))
    assert room == b"12345"
    changed = bytearray(say.seal(b"12345"))
    changed[0] ^= 1
    with pytest.raises(ProtocolError):
        hear.open_into(bytes(changed), memoryview(room))
