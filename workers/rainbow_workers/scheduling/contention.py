"""Which clusters jobs wait for: a new job does not take room from those that came before it. And which waiting queues
are full of one user's jobs: those of others do not wait behind them.

Each scheduler process knows the jobs that it holds itself. One object of it, read by the thread that takes submissions
and written by the one that holds waiting jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from rainbow import topology


class Contention:
    """`clusters` are those that a waiting job could use; None stands for all of them. `full` has the waiting queues of
    which this process holds as much as it may, and whose jobs most of that is."""

    def __init__(self) -> None:
        self.clusters: frozenset[str] | None = frozenset()
        self.full: Mapping[str, str] = {}

    def __contains__(self, cluster: str) -> bool:
        return self.clusters is None or cluster in self.clusters

    def __bool__(self) -> bool:
        return self.clusters is None or bool(self.clusters)

    def lane(self, user: str) -> str:
        """Routing key of the waiting queue for a job of `user`: the usual one, unless others fill it."""
        usual, full = topology.waiting_lane(user), self.full
        if full.get(f"{topology.WAITING}.{usual}", user) == user:
            return usual
        own = sorted(queue for queue, most in full.items() if most == user)
        free = [queue for queue in topology.waiting_queues() if queue not in full]
        queue = own[0] if own else free[int(usual) % len(free)] if free else f"{topology.WAITING}.{usual}"
        return queue.rpartition(".")[2]
