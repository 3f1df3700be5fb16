"""What an answer says of the clusters that were looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from rainbow.models.job import Reason

#: How many clusters an answer names one by one; its totals count them all.
MAX_NAMED = 64


def seen(names: Sequence[str], total: int, matches: int, reasons: Mapping[str, Reason]) -> dict[str, Any]:
    """What an answer says of the clusters that were looked at."""
    return {
        "clusters": list(islice(names, MAX_NAMED)),
        "total_clusters": total,
        "total_matches": matches,
        "total_mismatches": total - matches,
        "reasons": {c: {"code": r.code, "detail": r.detail} for c, r in reasons.items()},
    }
