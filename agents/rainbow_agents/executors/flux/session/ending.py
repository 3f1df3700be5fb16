"""The end of a job's output, which goes with its last event."""

from __future__ import annotations

_CUT = b"[what was written before this is left out]\n"


def end_of(data: bytes, limit: int) -> str | None:
    """Return `data` as text; of more than `limit` bytes the last lines, after a line that says so."""
    if len(data) > limit:
        end = data[len(_CUT) - limit :]
        data = _CUT + (end.partition(b"\n")[2] or end)
    return data.decode("utf-8", "replace") or None
