"""The position of a query: the number of the last reservation read.

Spark stores offsets as JSON in its checkpoint and compares them as text. An offset may also state
where its own batch begins: after a loss that the query must survive, the batch does not begin where
the previous batch ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from weft.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Offset:
    number: int
    #: The batch that ends here began after this number; None: at the end of the previous batch.
    begin: int | None = None

    @classmethod
    def parse(cls, said: dict[str, Any]) -> Offset:
        number, begin = said.get("r"), said.get("from")
        known = said.keys() <= {"r", "from"}
        if not known or not isinstance(number, int) or not isinstance(begin, int | None):
            raise InvalidArgument(
                f"the checkpoint has an offset of another source: {said}. A query that read "
                "another source needs a new checkpointLocation"
            )
        return cls(number, begin)

    def json(self) -> dict[str, int]:
        return {"r": self.number} | ({} if self.begin is None else {"from": self.begin})

    def numbers(self, before: Offset) -> range:
        """Returns the reservations of the batch that ends here."""
        return range((before.number if self.begin is None else self.begin) + 1, self.number + 1)
