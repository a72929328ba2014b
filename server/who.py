"""Who asks: a principal, if tokens are wanted, and from where."""

from __future__ import annotations

from typing import NamedTuple

from .access import Principal


class Who(NamedTuple):
    principal: Principal | None = None
    #: The other end's address; "" where nobody will look at it.
    where: str = ""

    @property
    def name(self) -> str:
        return self.principal.name if self.principal is not None else ""


NOBODY = Who()
