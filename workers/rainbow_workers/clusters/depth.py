"""How much work a cluster gets ahead of what it can start now.

Late binding: a job goes to a cluster that can start it now, or very soon. A cluster needs some work ahead to stay busy
from the end of one job until the next one arrives. How much follows its size and the rate at which its jobs end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from rainbow.jobspec.request import Demand
from rainbow_workers.selection.base import Load

#: Values that agents report: ends of jobs in a second, lately; and how many jobs may wait there (`agent.max_queued`).
ENDS_PER_S = "ends_per_s"
MAX_QUEUED = "max_queued"


@dataclass(frozen=True, slots=True)
class DepthPolicy:
    """Attributes:
    share: At least this share of a cluster's size may be ahead.
    seconds: At least as many jobs may be ahead as ended in so many seconds, at the measured rate.
    """

    share: float = 1 / 16
    seconds: float = 0.5

    def fits(
        self, load: Load, reserved: Demand, promised: tuple[int, int, int], demand: Demand, state: Mapping[str, Any]
    ) -> bool:
        """Can a job start there now or very soon?

        Args:
            load: Totals, and what is free minus `reserved` and `promised`.
            reserved: What the store holds for jobs that no report contains yet.
            promised: Nodes, cores, gpus that were decided and are not in the store's sums.
            demand: What the job takes.
            state: The values of the cluster's latest report.
        """
        ahead = _number(state.get(ENDS_PER_S)) * self.seconds
        most = state.get(MAX_QUEUED)
        dimensions = [
            (load.free.cores, load.total.cores, reserved.cores, promised[1], demand.cores),
            (load.free.gpus, load.total.gpus, reserved.gpus, promised[2], demand.gpus),
        ]
        if not demand.cores and not demand.gpus:
            dimensions = [(load.free.nodes, load.total.nodes, reserved.nodes, promised[0], demand.nodes)]
        for free, total, held, decided, wanted in dimensions:
            if not wanted:
                continue
            # Jobs that wait there longer than their reservation lasts count as jobs of this size.
            left = free - max(0, load.pending * wanted - held)
            if left - wanted < -max(ceil(total * self.share), ahead * wanted):
                return False
            if most is not None and max(load.pending, ceil((held + decided) / wanted)) >= _number(most):
                return False
        return True


def _number(value: Any) -> float:
    """A reported value, 0 if it makes no sense."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53:
        return 0.0
    return float(value)
