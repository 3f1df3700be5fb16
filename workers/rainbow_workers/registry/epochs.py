"""Announces a new epoch of the store to the agents, which then report again what they have."""

from __future__ import annotations

from rainbow.brokers.base import Broker
from rainbow.models.control import AgentCommand
from rainbow_workers import commands
from rainbow_workers.clusters.cache import REPORTED_EPOCH, ClusterCache
from rainbow_workers.keys import ClusterKeys


class Announcer:
    """`look` is called from time to time: an epoch is announced once, to the clusters that have not reported for it."""

    def __init__(self, broker: Broker, world: ClusterCache, keys: ClusterKeys) -> None:
        self._broker = broker
        self._world = world
        self._keys = keys
        self._announced = 0

    def look(self) -> None:
        with self._world.lock:
            epoch = self._world.epoch
            if epoch == self._announced:
                return
            late = [c.record for c in self._world.clusters.values() if c.state.values.get(REPORTED_EPOCH) != epoch]
        command = AgentCommand(command="resync", reason="the store has a new epoch")
        self._broker.publish([commands.message(self._keys, r.name, r.registration, command) for r in late])
        self._announced = epoch
