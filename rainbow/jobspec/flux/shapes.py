"""What V1 (RFC 25) can say about resources: so many slots of cores and gpus, on so many nodes or anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rainbow.errors import InvalidJobspec
from rainbow.jobspec.problems import invalid
from rainbow.jobspec.request import SLOT, XOR_SLOT, Want


@dataclass(frozen=True, slots=True)
class Shape:
    """`slots` of `cores` and `gpus` each: on every one of `nodes` nodes, or in all when `nodes` is None."""

    nodes: int | None
    slots: int
    cores: int
    gpus: int = 0
    exclusive: bool = False

    @property
    def total_slots(self) -> int:
        return self.slots * (self.nodes or 1)

    def resources(self, label: str = "task") -> list[dict[str, Any]]:
        """The `resources` of a V1 document."""
        inside = [{"type": "core", "count": self.cores}]
        if self.gpus:
            inside.append({"type": "gpu", "count": self.gpus})
        slot: dict[str, Any] = {"type": "slot", "count": self.slots, "label": label, "with": inside}
        if self.nodes is None:
            return [slot]
        node: dict[str, Any] = {"type": "node", "count": self.nodes, "with": [slot]}
        if self.exclusive:
            node["exclusive"] = True
        return [node]

    def flags(self) -> list[str]:
        """The same as options of ``flux submit`` and ``flux batch``."""
        flags = [] if self.nodes is None else [f"-N{self.nodes}"]
        flags += [f"-n{self.total_slots}", f"-c{self.cores}"]
        if self.gpus:
            flags.append(f"-g{self.gpus}")
        if self.exclusive and self.nodes is not None:
            flags.append("--exclusive")
        return flags


ONE_CORE = Shape(None, 1, 1)
"""What Flux gives a command of which nothing is said."""


def shape_of(wants: tuple[Want, ...], whose: str) -> Shape:
    """The V1 shape of what `whose` asks for, with each count at its smallest.

    A ``cluster`` of one at the top says nothing and is left out. A node in a slot is the same as a slot
    that fills the node. Where only gpus are named a core is added, since a task needs one to run on. A
    node of which nothing more is said is taken whole.

    Raises:
        InvalidJobspec: says what V1 has no words for.
    """
    while len(wants) == 1 and wants[0].type == "cluster" and wants[0].count.min == 1 and wants[0].children:
        wants = wants[0].children
    if len(wants) != 1:
        raise _cannot(whose, f"{len(wants)} resources side by side; it has one, a node or a slot")
    top = wants[0]
    if top.type == "node":
        return _in_node(top, whose, bool(top.exclusive))
    if top.type in ("core", "gpu"):
        cores, gpus = _leaves((top,), whose)
        return Shape(None, 1, cores, gpus)
    if top.type != SLOT:
        raise _unknown(top, whose)
    if len(top.children) == 1 and top.children[0].type == "node":
        node = top.children[0]
        if node.count.min != 1:
            raise _cannot(
                whose, f"a slot of {node.count.min} nodes; its slots lie inside nodes: ask for nodes with slots in them"
            )
        inner = _in_node(node, whose, exclusive=True)  # what is in a slot belongs to it alone (RFC 14)
        return Shape(top.count.min, inner.slots, inner.cores, inner.gpus, True)
    cores, gpus = _leaves(top.children, whose)
    return Shape(None, top.count.min, cores, gpus)


def _in_node(node: Want, whose: str, exclusive: bool) -> Shape:
    below = node.children
    if not below:
        return Shape(node.count.min, 1, 1, 0, True)
    slots = 1
    if len(below) == 1 and below[0].type == SLOT:
        slots, below = below[0].count.min, below[0].children
    cores, gpus = _leaves(below, whose)
    return Shape(node.count.min, slots, cores, gpus, exclusive)


def _leaves(wants: tuple[Want, ...], whose: str) -> tuple[int, int]:
    cores = gpus = 0
    for want in wants:
        if want.type not in ("core", "gpu"):
            raise _unknown(want, whose)
        if want.children:
            raise _cannot(whose, f"{want.children[0].type} inside {want.type}; nothing stands below a {want.type}")
        if want.type == "core":
            cores += want.count.min
        else:
            gpus += want.count.min
    return max(cores, 1), gpus


def _unknown(want: Want, whose: str) -> InvalidJobspec:
    if want.type == XOR_SLOT:
        return _cannot(whose, "alternatives (xor_slot)")
    if want.type == SLOT:
        return _cannot(whose, "a slot in a slot, or beside other resources")
    if want.type == "node":
        return _cannot(whose, "a node inside a node, or beside other resources in a slot")
    return _cannot(whose, f"the resource type {want.type!r}; it has node, slot, core and gpu")


def _cannot(whose: str, what: str) -> InvalidJobspec:
    return invalid(whose, f"V1 jobspecs, which Flux runs, cannot say: {what}")
