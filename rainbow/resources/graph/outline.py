"""The folded tree as a plain document, for pictures: nested, and bounded in size."""

from __future__ import annotations

from collections import deque
from typing import Any

from rainbow.resources.graph.shape import Shape

#: Shapes that an outline has at most; what is left out is counted in `more`.
MOST = 300


def outline(root: Shape, most: int = MOST) -> dict[str, Any]:
    """``{type, size, unit, count, children: [...], more}``: `count` equal subtrees under one parent are one entry.

    `more` says how many entries below are left out, once there are `most` of them.
    """
    top = _entry(root, 1)
    waiting = deque([(root, top)])
    left = most - 1
    while waiting:
        shape, entry = waiting.popleft()
        shown = shape.children[: max(0, left)]
        left -= len(shown)
        entry["more"] = len(shape.children) - len(shown)
        for child, count in shown:
            below = _entry(child, count)
            entry["children"].append(below)
            waiting.append((child, below))
    return top


def _entry(shape: Shape, count: int) -> dict[str, Any]:
    return {"type": shape.type, "size": shape.size, "unit": shape.unit, "count": count, "children": [], "more": 0}
