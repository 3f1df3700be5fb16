"""The folded resource tree of a cluster: equal subtrees are one row with their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

_ROW, _STEP, _CHAR = 26, 24, 8
_STYLE = (
    "svg{background:#fff}text{font:13px ui-monospace,monospace;fill:#1b1f24}path{stroke:#d0d7de;fill:none;"
    "stroke-width:2}rect{fill:#f6f8fa;stroke:#d0d7de}rect.node{stroke:#0969da}rect.gpu{stroke:#1a7f37}"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the tree: what it says, and for each level above whether a branch goes on there (the last: its own)."""

    text: str
    type: str
    branches: tuple[bool, ...]


def rows(outline: Mapping[str, Any]) -> list[Row]:
    """The rows of an outline (`rainbow.client.ClusterView.tree`), from the root down."""
    return list(_rows(outline, ()))


def _rows(entry: Mapping[str, Any], branches: tuple[bool, ...]) -> Iterator[Row]:
    yield Row(_label(entry), str(entry["type"]), branches)
    below, more = entry.get("children") or [], entry.get("more") or 0
    for index, child in enumerate(below):
        yield from _rows(child, (*branches, index + 1 < len(below) or bool(more)))
    if more:
        yield Row(f"... {more} more", "more", (*branches, False))


def _label(entry: Mapping[str, Any]) -> str:
    size, unit = entry.get("size", 1), entry.get("unit") or ""
    sized = f" of {size}{f' {unit}' if unit else ''}" if size != 1 or unit else ""
    return f"{entry['count']} × {entry['type']}{sized}" if entry["count"] != 1 else f"{entry['type']}{sized}"


def lines(outline: Mapping[str, Any]) -> list[str]:
    """The tree for a terminal."""
    out = []
    for row in rows(outline):
        *above, own = (*row.branches,) or (None,)
        stem = "".join("│  " if goes_on else "   " for goes_on in above)
        joint = "" if own is None else "├─ " if own else "└─ "
        out.append(f"{stem}{joint}{row.text}")
    return out


def document(outline: Mapping[str, Any], name: str) -> str:
    """The tree as an SVG file that needs nothing beside it."""
    start, _, rest = svg(outline, name).partition(">")
    return f'{start} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>{rest}\n'


def svg(outline: Mapping[str, Any], name: str) -> str:
    """The tree as a picture. Its colours come from the classes of the page's style."""
    found = rows(outline)
    width = max(len(row.branches) * _STEP + len(row.text) * _CHAR + 28 for row in found)
    height = len(found) * _ROW
    said = escape(f"Resources of {name}: {'; '.join(row.text for row in found[:30])}")
    parts = [f'<svg class="tree" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" ']
    parts.append(f'aria-label="{said}">')
    for index, row in enumerate(found):
        depth, top = len(row.branches), index * _ROW
        x, middle = depth * _STEP, top + _ROW // 2
        for level, goes_on in enumerate(row.branches, 1):
            line, own = level * _STEP - _STEP // 2, level == depth
            if goes_on or own:
                parts.append(f'<path d="M{line} {top}V{top + _ROW if goes_on else middle}"/>')
            if own:
                parts.append(f'<path d="M{line} {middle}H{x}"/>')
        box = len(row.text) * _CHAR + 16
        parts.append(
            f'<rect class="{escape(_kind(row.type))}" x="{x}" y="{top + 2}" width="{box}" height="22" rx="5"/>'
        )
        parts.append(f'<text x="{x + 8}" y="{top + 17}">{escape(row.text)}</text>')
    return "".join([*parts, "</svg>"])


def _kind(type_: str) -> str:
    """A class for the style: types that are no plain word have none of their own."""
    return type_ if type_.isascii() and type_.isalnum() else "other"
