"""Every story prints its expected output.

`WEFT_REWRITE=1 pytest tests/engine/test_stories.py` rewrites the stories with the node's present
output; the change is then reviewed as a diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.engine.storyteller import PROMPT, played

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    told = path.read_text(encoding="utf-8")
    real = played(told)
    if os.environ.get("WEFT_REWRITE") == "1":
        path.write_text(real, encoding="utf-8")
    assert real == told or os.environ.get("WEFT_REWRITE") == "1"


def test_there_are_stories_and_each_says_something() -> None:
    assert len(STORIES) >= 8
    for path in STORIES:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith("# "), path.name
        assert sum(line.startswith(PROMPT) for line in lines) >= 5, path.name


def test_a_false_story_is_noticed() -> None:
    story = '# Wrong\n\n$ create q\ncreated\n\n$ push q "a" batch=1\npushed batch 1, 1 message\n'
    assert played(story) == story
    assert played(story.replace("1 message", "2 messages")) == story
    assert played(story.replace("created\n", "", 1)) == story
