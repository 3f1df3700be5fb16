"""Which clusters jobs wait for: a new job does not take room from those that came before it.

Each scheduler process knows the jobs that it holds itself. One object of it, read by the thread that takes submissions
and written by the one that holds waiting jobs.
"""

from __future__ import annotations


class Contention:
    """`clusters` are those that a waiting job could use; None stands for all of them."""

    def __init__(self) -> None:
        self.clusters: frozenset[str] | None = frozenset()

    def __contains__(self, cluster: str) -> bool:
        return self.clusters is None or cluster in self.clusters

    def __bool__(self) -> bool:
        return self.clusters is None or bool(self.clusters)
