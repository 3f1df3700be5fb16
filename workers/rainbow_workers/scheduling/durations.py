"""How long jobs stay in the stages of scheduling, counted in buckets, for the metrics."""

from __future__ import annotations

from bisect import bisect_left

#: The stages: choosing clusters; waiting for the ledger, while the next batch is decided; handing messages to the
#: broker; and its confirms.
STAGES = ("decide", "ledger", "publish", "confirm")
#: Upper bounds of the buckets, in seconds; one more bucket has no bound.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Durations:
    """Counts by stage. Each stage is counted by one thread at a time; reading needs no lock."""

    def __init__(self) -> None:
        self.counts = {stage: [0] * (len(BOUNDS) + 1) for stage in STAGES}
        self.sums = dict.fromkeys(STAGES, 0.0)

    def add(self, stage: str, seconds: float, jobs: int) -> None:
        """Count a batch of so many jobs."""
        self.counts[stage][bisect_left(BOUNDS, seconds)] += jobs
        self.sums[stage] += seconds * jobs

    def __add__(self, other: Durations) -> Durations:
        total = Durations()
        for stage in STAGES:
            total.counts[stage] = [a + b for a, b in zip(self.counts[stage], other.counts[stage], strict=True)]
            total.sums[stage] = self.sums[stage] + other.sums[stage]
        return total
