"""The caller of a request: a principal, if tokens are required, and the peer's address."""

from __future__ import annotations

from typing import NamedTuple

from .access import Principal


class Caller(NamedTuple):
    principal: Principal | None = None
    #: The peer's address; "" where no audit needs one.
    where: str = ""

    @property
    def name(self) -> str:
        return self.principal.name if self.principal is not None else ""


ANONYMOUS = Caller()
