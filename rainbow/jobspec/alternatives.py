"""Sibling slots that no task distinguishes are alternatives (RFC 14; flux-sched's flexible traverser).

A task runs in the one slot whose label it names. Slots beside each other hold together only where each has a
label of its own that some task names; of those that share a label, or that no task names, the tasks need one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from rainbow.jobspec.request import SLOT, XOR_SLOT, Want


def with_alternatives(wants: tuple[Want, ...], vertices: list[Any], named: set[str]) -> tuple[Want, ...]:
    """`wants` as read from `vertices`, with such slots turned into `xor_slot`. `named`: labels of all tasks."""
    labels = Counter(str(vertex["label"]) for vertex in vertices if vertex["type"] == SLOT)
    if sum(labels.values()) < 2:
        told_apart = True
    else:
        told_apart = all(count == 1 and label in named for label, count in labels.items())
    made: list[Want] = []
    for want, vertex in zip(wants, vertices, strict=True):
        children = with_alternatives(want.children, vertex["with"], named) if want.children else ()
        kind = want.type if told_apart or want.type != SLOT else XOR_SLOT
        made.append(
            want if children is want.children and kind == want.type else replace(want, type=kind, children=children)
        )
    return tuple(made)


def has_sibling_slots(wants: tuple[Want, ...]) -> bool:
    """Whether any list holds more than one slot (nearly no jobspec does)."""
    slots = 0
    for want in wants:
        slots += want.type == SLOT
        if slots > 1 or (want.children and has_sibling_slots(want.children)):
            return True
    return False
