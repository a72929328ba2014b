"""Stories: scenarios that read like a terminal session, run on a node in virtual time.

A story is a text file. A line that begins with ``$`` is a command; the lines below a command are
its expected output; everything else is prose. Popped messages get letters (a, b, c ...); later
commands use a letter to name a receipt, however stale. Commands:

    create QUEUE [setting=value ...]      update QUEUE setting=value ...      delete QUEUE
    push QUEUE "BODY" ... [batch=N] [delay_ms=N] [priority=N] [dedup_key=K]
    pop QUEUE [N] [lease_ms=N]            peek QUEUE [N]                      show QUEUE
    ack QUEUE a b ...                     nack QUEUE a ... [delay_ms=N] [reason="WHY"]
    extend QUEUE MS a ...                 purge QUEUE                         redrive QUEUE [N]
    wait QUEUE [wait_ms=N]                advance MS                          restart
    power loss

A waiting pop prints its messages under the command that woke it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from string import ascii_lowercase

from tests.engine.rig import Rig, Taken, messages_of
from weft.errors import WeftError
from weft.proto import wire

PROMPT = "$ "


def played(text: str) -> str:
    """The same story with the node's real output."""
    teller = Storyteller()
    lines: list[str] = []
    answers = False  # True below a command, up to the next empty line: the expected output
    for line in text.splitlines():
        if line.startswith(PROMPT):
            lines += [line, *teller.tell(line[len(PROMPT) :])]
            answers = True
        elif not answers or not line.strip():
            lines.append(line)
            answers = False
    return "\n".join(lines) + "\n"


class Storyteller:
    def __init__(self) -> None:
        self.rig = Rig()
        self.named: dict[str, Taken] = {}
        self.waiting: list[object] = []
        self.verbs: dict[str, Callable[..., list[str]]] = {
            name: getattr(self, f"_{name}")
            for name in ("create", "update", "delete", "push", "pop", "peek", "show", "ack", "nack",
                         "extend", "purge", "redrive", "wait", "advance", "restart", "power")
        }  # fmt: skip

    def tell(self, command: str) -> list[str]:
        verb, *words = shlex.split(command)
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        try:
            printed = self.verbs[verb](*plain, **{k: _value(v) for k, v in options.items()})
        except WeftError as error:
            printed = [f"{error.code}: {error.message}"]
        return printed + self._woken()

    # --- queues ---------------------------------------------------------------------------

    def _create(self, queue: str, **settings: int | str) -> list[str]:
        return ["created" if self.rig.create(queue, **settings) else "it is there already"]

    def _update(self, queue: str, **changes: int | str) -> list[str]:
        self.rig.update(queue, **changes)
        return ["updated"]

    def _delete(self, queue: str) -> list[str]:
        return [f"deleted, with {_messages(self.rig.delete(queue))}"]

    def _purge(self, queue: str) -> list[str]:
        return [f"purged of {_messages(self.rig.purge(queue))}"]

    def _redrive(self, queue: str, limit: str = "0") -> list[str]:
        return [f"redriven: {_messages(self.rig.redrive(queue, int(limit)))}"]

    def _show(self, queue: str) -> list[str]:
        stats = self.rig.stats(queue)
        return [f"ready {stats.ready}, leased {stats.leased}, delayed {stats.delayed}"]

    # --- messages -------------------------------------------------------------------------

    def _push(self, queue: str, *bodies: str, **options: int | str) -> list[str]:
        pushed = self.rig.push(queue, *(body.encode() for body in bodies), **options)  # type: ignore[arg-type]
        said = f"batch {pushed.batch}, {_messages(pushed.count)}"
        return [f"duplicate of {said}" if pushed.duplicate else f"pushed {said}"]

    def _pop(self, queue: str, limit: str = "1", lease_ms: int = 0) -> list[str]:
        return self._list(self.rig.pop(queue, int(limit), lease_ms))

    def _peek(self, queue: str, limit: str = "100") -> list[str]:
        shown = [self._line("-", message) for message in self.rig.peek(queue, int(limit))]
        return shown or ["nothing"]

    def _wait(self, queue: str, limit: str = "1", wait_ms: int = 20_000) -> list[str]:
        self.waiting.append(self.rig.ask(wire.Pop(queue, int(limit), wait_ms)))
        return []

    def _ack(self, queue: str, *letters: str) -> list[str]:
        return self._settled(letters, self.rig.ack(queue, *self._of(letters)), "acked")

    def _nack(self, queue: str, *letters: str, delay_ms: int = 0, reason: str = "") -> list[str]:
        settled = self.rig.nack(queue, *self._of(letters), delay_ms=delay_ms, reason=reason)
        return self._settled(letters, settled, "nacked")

    def _extend(self, queue: str, lease_ms: str, *letters: str) -> list[str]:
        settled = self.rig.extend(queue, int(lease_ms), *self._of(letters))
        return self._settled(letters, settled, "extended")

    # --- time and power -------------------------------------------------------------------

    def _advance(self, ms: str) -> list[str]:
        self.rig.advance(int(ms))
        return []

    def _restart(self) -> list[str]:
        self.rig.restart()
        self.waiting.clear()
        return []

    def _power(self, loss: str) -> list[str]:
        assert loss == "loss"
        self.rig.crash()
        self.waiting.clear()
        return []

    # --- printing -------------------------------------------------------------------------

    def _of(self, letters: tuple[str, ...]) -> list[Taken]:
        return [self.named[letter] for letter in letters]

    def _list(self, messages: list[Taken]) -> list[str]:
        lines = []
        for message in messages:
            letter = ascii_lowercase[len(self.named)]
            self.named[letter] = message
            lines.append(self._line(letter, message))
        return lines or ["nothing"]

    def _line(self, letter: str, message: Taken) -> str:
        line = f'{letter}  "{message.body.decode()}"'
        if message.lent.nonce:
            line += f"  delivery {message.deliveries}"
        return f"{line}  ({message.lent.reason})" if message.lent.reason else line

    def _settled(self, letters: tuple[str, ...], settled: wire.Settled, word: str) -> list[str]:
        lines = [f"{word} {settled.done}"] if settled.done else []
        lines += [f"already {word} {settled.already}"] if settled.already else []
        return lines + [f"lease lost: {letters[place]}" for place in settled.lost]

    def _woken(self) -> list[str]:
        lines: list[str] = []
        for token in list(self.waiting):
            answered = self.rig.answer(token)
            if answered is None:
                continue
            self.waiting.remove(token)
            if isinstance(answered.answer, wire.Failure):
                lines.append(f"the wait ends: {answered.answer.message}")
                continue
            lines.append("the wait ends:")
            lines += self._list(messages_of(answered.answer, answered.payload))
        return lines


def _messages(count: int) -> str:
    return f"{count} message" if count == 1 else f"{count} messages"


def _value(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdigit() else word
