"""Clusters that could start jobs at once."""

from __future__ import annotations

from rainbow_workers.clusters.cache import ClusterCache


def has_free(world: ClusterCache, cluster: str) -> bool:
    """Does `cluster` take jobs, and is something free there? Where no agent ever reported, nothing is known."""
    if any(cluster in names for names in (world.drained, world.unreachable, world.throttled, world.closed.reasons)):
        return False
    free = world.load(cluster).free
    return free.cores > 0 or free.nodes > 0 or free.gpus > 0


def is_idle(world: ClusterCache, cluster: str) -> bool:
    """Is something free there, and does nothing wait?"""
    load = world.load(cluster)
    return cluster not in world.unserved and not load.pending and load.free.nodes >= 0 and has_free(world, cluster)
