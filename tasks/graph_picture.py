"""Pictures of a graph: SVG and DOT, written without a drawing library.

Tasks stand in columns by their depth, the longest way from a task without parents, and parents
stand left of their children. The picture of a large graph is its tasks by name: one box for each
name with the numbers of tasks and states, and one line for each pair of names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from html import escape
from typing import Final

from .graph_record import GraphRecord
from .graph_run import CANCELLED, DONE, FAILED, READY, UPSTREAM, WAITING, GraphProgress

#: More tasks are shown by name.
SINGLE_TASKS_MAX: Final = 300
COLORS: Final = {
    WAITING: "#d9d9d9", READY: "#9ecae1", DONE: "#a1d99b", FAILED: "#fb6a4a", UPSTREAM: "#fdae6b",
    CANCELLED: "#bcbddc",
}  # fmt: skip
_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 150, 30, 210, 46, 24


@dataclass(frozen=True)
class Box:
    """A task, or all tasks of one name."""

    label: str
    color: str
    depth: int


@dataclass(frozen=True)
class Picture:
    title: str
    boxes: list[Box]
    lines: list[tuple[int, int]]


def picture_of(record: GraphRecord, progress: GraphProgress) -> Picture:
    ended = f"{progress.ended} of {progress.tasks} tasks ended"
    title = f"graph {record.number}: {ended}"
    if len(record.names) <= SINGLE_TASKS_MAX:
        depths = depths_of(record)
        boxes = [
            Box(f"{node} {record.name_of(node)}", COLORS[progress.states[node]], depths[node])
            for node in range(len(record.names))
        ]
        lines = [(parent, node) for node, own in enumerate(record.parents) for parent in own]
        return Picture(title, boxes, lines)
    return _by_name(record, progress, title)


def _by_name(record: GraphRecord, progress: GraphProgress, title: str) -> Picture:
    depths = depths_of(record)
    boxes: list[Box] = []
    for number, name in enumerate(record.tasks):
        nodes = [node for node, own in enumerate(record.names) if own == number]
        states = Counter(progress.states[node] for node in nodes)
        worst = next(state for state in (FAILED, CANCELLED, UPSTREAM, READY, WAITING, DONE)
                     if states[state])  # fmt: skip
        done = states[DONE]
        label = f"{name}: {done} of {len(nodes)} done"
        boxes.append(Box(label, COLORS[worst], min(depths[node] for node in nodes)))
    pairs = {
        (record.names[parent], record.names[node])
        for node, own in enumerate(record.parents)
        for parent in own
    }
    return Picture(title, boxes, sorted(pairs))


def depths_of(record: GraphRecord) -> list[int]:
    """The longest way to each node."""
    depths = [-1] * len(record.parents)
    for start in range(len(depths)):
        stack = [start]
        while stack:
            node = stack[-1]
            open_ = [parent for parent in record.parents[node] if depths[parent] < 0]
            if depths[node] >= 0 or not open_:
                stack.pop()
                known = [depths[parent] for parent in record.parents[node]]
                depths[node] = max(known, default=-1) + 1
            else:
                stack += open_
    return depths


def as_dot(picture: Picture) -> str:
    """Text for Graphviz: `dot -Tpng`."""
    rows = [f'  label="{_quoted(picture.title)}"; rankdir=LR; node [shape=box, style=filled];']
    rows += [
        f'  n{number} [label="{_quoted(box.label)}", fillcolor="{box.color}"];'
        for number, box in enumerate(picture.boxes)
    ]
    rows += [f"  n{left} -> n{right};" for left, right in picture.lines]
    return "\n".join(["digraph weft {", *rows, "}", ""])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def as_svg(picture: Picture) -> str:
    used: Counter[int] = Counter()
    places: list[tuple[int, int]] = []
    for box in picture.boxes:
        row = used[box.depth]
        used[box.depth] += 1
        places.append((_MARGIN + box.depth * _ACROSS, 3 * _MARGIN + row * _DOWN))
    width = _MARGIN * 2 + (max(used, default=0) + 1) * _ACROSS
    height = 4 * _MARGIN + max(used.values(), default=0) * _DOWN
    rows = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<text x="{_MARGIN}" y="{_MARGIN}">{escape(picture.title)}</text>',
    ]
    for place, (state, color) in enumerate(COLORS.items()):
        x, y = _MARGIN + place * 115, _MARGIN + 10
        rows.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>')
        rows.append(f'<text x="{x + 14}" y="{y + 9}">{state}</text>')
    for left, right in picture.lines:
        (x1, y1), (x2, y2) = places[left], places[right]
        rows.append(
            f'<line x1="{x1 + _WIDTH}" y1="{y1 + _HEIGHT // 2}" x2="{x2}" '
            f'y2="{y2 + _HEIGHT // 2}" stroke="#888"/>'
        )
    for box, (x, y) in zip(picture.boxes, places, strict=True):
        label = box.label if len(box.label) <= 22 else box.label[:21] + "…"
        rows += [
            f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="4" '
            f'fill="{box.color}" stroke="#555"><title>{escape(box.label)}</title></rect>',
            f'<text x="{x + 6}" y="{y + 19}">{escape(label)}</text>',
        ]
    return "\n".join([*rows, "</svg>", ""])
