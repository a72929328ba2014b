"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["OK", "WARN", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """``advice`` says what to do; only an OK has none."""

    level: Level
    check: str
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        assert (self.level == "OK") == (not self.advice), "what is not OK needs advice"
