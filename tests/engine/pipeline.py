"""Subscriptions and stages on a rig: the steps of a node's operations, one by one."""

from __future__ import annotations

from collections.abc import Sequence

from tests.engine.rig import Rig, checked, messages_of, payload_of
from weft.proto import pipelines, wire
from weft.proto.pipelines import ReservationInfo, SliceInfo
from weft.server.engine.state import Answered

TTL_MS = 3_600_000
MIB = 1 << 20


class Reader:
    """The holder of a subscription."""

    def __init__(self, rig: Rig, queue: str = "q", name: str = "sub", nonce: int = 1) -> None:
        self.rig, self.queue, self.name = rig, queue, name
        opened = rig.call(pipelines.OpenSubscription(queue, name, TTL_MS, nonce))
        assert isinstance(opened, pipelines.Opened)
        self.epoch = opened.epoch

    def begin(self, number: int, *, sure: bool = True) -> wire.AnyAnswer:
        request = pipelines.BeginReserve(self.queue, self.name, self.epoch, number, sure)
        return self.rig.call(request)

    def survey(
        self, number: int, token: int, most: int = 1000, most_bytes: int = MIB
    ) -> pipelines.Surveyed:
        request = pipelines.Survey(self.queue, self.name, number, token, most, most_bytes, [])
        answer = self.rig.call(request)
        assert isinstance(answer, pipelines.Surveyed)
        return answer

    def mark(
        self, number: int, token: int, upto: int = 1 << 53, most: int = 1000, most_bytes: int = MIB
    ) -> list[pipelines.Held]:
        request = pipelines.Mark(self.queue, self.name, number, token, upto, most, most_bytes, [])
        answer = self.rig.call(request)
        assert isinstance(answer, pipelines.Marked)
        return answer.held

    def reserve(self, number: int, most: int = 1000, most_bytes: int = MIB) -> ReservationInfo:
        """Begin, mark and seal."""
        token = self.token(number)
        return self.seal(number, token, self.mark(number, token, 1 << 53, most, most_bytes))

    def token(self, number: int) -> int:
        answer = self.begin(number)
        assert isinstance(answer, wire.Done)
        return answer.count

    def seal(self, number: int, token: int, held: Sequence[pipelines.Held]) -> ReservationInfo:
        slices = [SliceInfo(h.partition, h.messages, h.bytes, [(h.id, h.messages)]) for h in held]
        made = ReservationInfo(number, sum(h.messages for h in held), 0, 0, slices)
        request = pipelines.SealReservation(self.queue, self.name, token, made)
        answer = self.rig.call(request)
        assert answer == pipelines.Reserved(made)
        return made

    def read(self, reservation: ReservationInfo, step: int = 65_536) -> list[bytes]:
        found: list[bytes] = []
        for one in reservation.slices:
            start = 0
            while start < one.messages:
                answered = checked(self.ask_read(one, start, step))
                bodies = [each.body for each in messages_of(answered.answer, answered.payload)]
                assert bodies
                found += bodies
                start += len(bodies)
        return found

    def ask_read(self, one: SliceInfo, start: int = 0, limit: int = 65_536) -> Answered:
        request = pipelines.ReadReserved(self.queue, one.partition, one.holds, start, limit)
        return self.rig.send(request)

    def ack(self, number: int, *, skip_lost: bool = False) -> None:
        """Ack in the ledger, then on the partitions, then in the ledger again."""
        request = pipelines.AckThrough(self.queue, self.name, self.epoch, number, skip_lost)
        self.pay(self.rig.call(request))

    def release(self) -> int:
        return self.pay(self.rig.call(pipelines.ReleaseAll(self.queue, self.name)))

    def pay(self, owed: wire.AnyAnswer) -> int:
        assert isinstance(owed, pipelines.Owed)
        count = 0
        for _, acked, holds in owed.debts:
            done = self.rig.call(pipelines.Finish(self.queue, holds, acked))
            assert isinstance(done, wire.Done)
            count += done.count
        numbers = [number for number, _, _ in owed.debts]
        self.rig.call(pipelines.Settle(self.queue, self.name, numbers))
        return count


class Writer:
    """A publisher app, with a token for each stage."""

    def __init__(self, rig: Rig, queue: str = "q", app: str = "app") -> None:
        self.rig, self.queue, self.app = rig, queue, app
        self._tokens = self._numbers = 0

    def stage(self, batch: int, part: int, attempt: int, *bodies: bytes, close: bool = True) -> int:
        """Stage each message as a batch of its own; return the token."""
        self._tokens += 1
        token = self._tokens
        for body in bodies:
            self._numbers += 1
            answer = self.put(batch, part, attempt, token, self._numbers, body)
            assert isinstance(answer, wire.Pushed)
            assert not answer.duplicate
        if close:
            self.close(batch, part, attempt, token, len(bodies))
        return token

    def put(
        self, batch: int, part: int, attempt: int, token: int, number: int, body: bytes
    ) -> wire.AnyAnswer:
        request = pipelines.StageBatch(
            self.queue, self.app, batch, part, attempt, token, 9, number, 1
        )
        return self.rig.call(request, payload_of([body]))

    def close(self, batch: int, part: int, attempt: int, token: int, count: int) -> None:
        request = pipelines.CloseStage(self.queue, self.app, batch, part, attempt, token, count)
        assert self.rig.call(request) == wire.Done(count)

    def decide(self, batch: int, *winners: tuple[int, int, int]) -> wire.AnyAnswer:
        return self.rig.call(pipelines.Decide(self.queue, self.app, batch, list(winners)))

    def reveal(self, decision: wire.AnyAnswer) -> int:
        assert isinstance(decision, pipelines.Decision)
        request = pipelines.Reveal(self.queue, self.app, decision.batch, decision.tokens, [])
        answer = self.rig.call(request)
        assert isinstance(answer, wire.Done)
        return answer.count

    def publish(self, batch: int, *winners: tuple[int, int, int]) -> int:
        decision = self.decide(batch, *winners)
        count = self.reveal(decision)
        self.rig.call(pipelines.Decided(self.queue, self.app, batch))
        self.rig.settle()
        return count

    def give_up(self, *stages: tuple[int, int], expire: bool = False) -> list[int]:
        request = pipelines.GiveUpStages(self.queue, self.app, list(stages), expire)
        answer = self.rig.call(request)
        assert isinstance(answer, pipelines.Judged)
        return answer.dead
