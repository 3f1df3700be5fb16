"""When jobs waited and ran, cluster by cluster: bars in rows that do not overlap."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rainbow.models.job import TERMINAL, JobRecord

#: Bars that a timeline draws at most: the newest ones.
MOST_BARS = 500
_ROW = 14
_STYLE = Path(__file__).parent.parent / "web" / "static" / "rainbow.css"


def stamp(seconds: float | None) -> str:
    """A time in UTC, ISO 8601."""
    return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(seconds)) if seconds else "-"


def span(seconds: float | None) -> str:
    """A length of time: ``950 ms``, ``12.3 s``, ``5 min``, ``3.2 h``, ``2.0 d``."""
    if seconds is None:
        return "-"
    for length, unit in ((86400.0, "d"), (3600.0, "h")):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(0.0, seconds) * 1000:.0f} ms"


@dataclass(frozen=True, slots=True)
class Bar:
    """A job in the timeline of its cluster; positions are in per mille of the window."""

    id: str
    title: str
    state: str
    row: int
    wait_x: float
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class Lane:
    """The bars of one cluster, in `rows` rows that do not overlap."""

    cluster: str
    rows: int
    bars: list[Bar]


def _ran(record: JobRecord, until: float) -> tuple[float, float] | None:
    """From when to when a job had its cluster; None before it had one."""
    start = record.times.get("running") or record.times.get("accepted") or record.times.get("assigned")
    if record.cluster is None or start is None:
        return None
    return start, record.times.get("ended", until if record.state not in TERMINAL else start)


def ran(record: JobRecord, since: float, until: float) -> bool:
    """Whether a job had its cluster between two times."""
    found = _ran(record, until)
    return found is not None and found[1] >= since and found[0] <= until


def lanes(records: Sequence[JobRecord], since: float, until: float) -> list[Lane]:
    """Gantt bars of jobs that ran between two times, cluster by cluster.

    Args:
        records: newest first, as `Client.jobs` returns them.
        since: seconds since 1970, the left edge.
        until: the right edge.
    """
    span_s = max(1e-9, until - since)

    def place(at: float) -> float:
        return round(1000 * min(1.0, max(0.0, (at - since) / span_s)), 2)

    found: dict[str, list[tuple[float, float, float, JobRecord]]] = {}
    for record in records[:MOST_BARS]:
        had = _ran(record, until)
        if record.cluster is not None and had is not None and had[1] >= since and had[0] <= until:
            found.setdefault(record.cluster, []).append((*had, record.times.get("submitted", had[0]), record))
    out = []
    for cluster, jobs in sorted(found.items()):
        rows: list[float] = []
        bars = []
        for start, end, submitted, record in sorted(jobs, key=lambda job: job[0]):
            row = next((at for at, free in enumerate(rows) if free <= start), len(rows))
            rows[row : row + 1] = [end]
            title = f"{record.name or record.id}: {record.state}, waited {span(start - submitted)}, {span(end - start)}"
            width = max(1.0, place(end) - place(start))
            bars.append(Bar(record.id, title, record.state, row, place(submitted), place(start), width))
        out.append(Lane(cluster, len(rows), bars))
    return out


def svg(lane: Lane, *, link: bool) -> str:
    """The bars of one cluster as a picture. Its colours come from the classes of the page's style.

    Args:
        lane: what to draw.
        link: whether each bar leads to the page of its job.
    """
    height = lane.rows * _ROW
    parts = [
        f'<svg class="lane" viewBox="0 0 1000 {height}" preserveAspectRatio="none" height="{height}" role="group" '
        f'aria-label="{len(lane.bars)} jobs">'
    ]
    for b in lane.bars:
        top, title = b.row * _ROW, escape(b.title)
        bar = (
            f"<title>{title}</title>"
            f'<rect class="wait" x="{b.wait_x}" y="{top + 5}" width="{max(0.0, b.x - b.wait_x):g}" height="2"/>'
            f'<rect class="job {b.state}" x="{b.x}" y="{top + 1}" width="{b.width:g}" height="10"/>'
        )
        parts.append(f'<a href="/jobs/{b.id}" aria-label="{title}">{bar}</a>' if link else f"<g>{bar}</g>")
    return "".join([*parts, "</svg>"])


def page(found: Sequence[Lane], since: float, until: float) -> str:
    """A whole HTML page that needs nothing beside it."""
    sections = [
        f'<section aria-label="Jobs of {escape(lane.cluster)}"><h2>{escape(lane.cluster)}</h2>'
        f"{svg(lane, link=False)}{_table(lane)}</section>"
        for lane in found
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Timeline - rainbow</title>'
        f"<style>\n{_STYLE.read_text()}</style></head>\n<body><main><h1>Timeline</h1>"
        f"<p>{stamp(since)} to {stamp(until)}. A thin line is the time that a job waited.</p>\n"
        f"{chr(10).join(sections) or '<p>No job ran in this time.</p>'}\n</main></body></html>\n"
    )


def _table(lane: Lane) -> str:
    """The same in words, for those who cannot see the bars."""
    items = "".join(f"<li>{escape(bar.title)} <code>{escape(bar.id)}</code></li>" for bar in lane.bars)
    return f"<details><summary>{len(lane.bars)} jobs</summary><ul>{items}</ul></details>"


def lines(found: Sequence[Lane], width: int, most: int = 40) -> list[str]:
    """The timeline for a terminal, `width` characters wide: dots where a job waited, blocks where it ran.

    At most `most` rows of each cluster are shown.
    """
    out = []
    for lane in found:
        out.append(f"{lane.cluster} ({len(lane.bars)} jobs)")
        grid = [[" "] * width for _ in range(min(lane.rows, most))]
        for bar in lane.bars:
            if bar.row < most:
                _draw(grid[bar.row], bar, width)
        out += [f"|{''.join(row)}|" for row in grid]
        if lane.rows > most:
            out.append(f"... {lane.rows - most} more rows")
    return out


#: What a bar is drawn with, by how the job is; anything else is a block.
_MARKS: Mapping[str, str] = {"failed": "x", "lost": "x", "cancelled": "-", "running": "▒"}


def _draw(row: list[str], bar: Bar, width: int) -> None:
    def column(at: float) -> int:
        return min(width - 1, int(at * width / 1000))

    for at in range(column(bar.wait_x), column(bar.x)):
        if row[at] == " ":
            row[at] = "·"
    last = max(column(bar.x), column(bar.x + bar.width - 1e-6))
    for at in range(column(bar.x), last + 1):
        row[at] = _MARKS.get(bar.state, "█")
