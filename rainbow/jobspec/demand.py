"""What a job roughly takes when it runs: the totals of nodes, cores and gpus in what it asks for."""

from __future__ import annotations

from rainbow.jobspec.request import XOR_SLOT, Demand, Want


def demand_of(wants: tuple[Want, ...]) -> Demand:
    """Totals with each count at its smallest. Of alternatives the dearest of each resource is taken."""
    nodes, cores, gpus = _totals(wants)
    return Demand(nodes, cores, gpus)


def _totals(wants: tuple[Want, ...]) -> tuple[int, int, int]:
    nodes = cores = gpus = 0
    dearest = (0, 0, 0)
    for want in wants:
        many = want.count.min
        kind = want.type
        if want.children:
            n, c, g = _totals(want.children)
            if kind == XOR_SLOT:
                dearest = (max(dearest[0], many * n), max(dearest[1], many * c), max(dearest[2], many * g))
                continue
            nodes += many * n
            cores += many * c
            gpus += many * g
        if kind == "core":
            cores += many
        elif kind == "gpu":
            gpus += many
        elif kind == "node":
            nodes += many
    return nodes + dearest[0], cores + dearest[1], gpus + dearest[2]
