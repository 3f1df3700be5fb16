"""The resources of a batch job, in the terms of any of the dialects, and the slots that they come to."""

from __future__ import annotations

from dataclasses import dataclass

from rainbow.errors import InvalidInput


@dataclass(slots=True)
class Resources:
    """What a script asks for; None where it does not say. GPUs are given per task, per node, or in all."""

    nodes: int | None = None
    tasks: int | None = None
    tasks_per_node: int | None = None
    cores_per_task: int | None = None
    gpus_per_task: int | None = None
    gpus_per_node: int | None = None
    gpus: int | None = None
    exclusive: bool = False

    def override(
        self, nodes: int | None, tasks: int | None, cores_per_task: int | None, gpus_per_task: int | None
    ) -> None:
        """Let the command line win. A total of tasks replaces the number per node, GPUs per task all other GPUs."""
        if nodes is not None:
            self.nodes = nodes
        if tasks is not None:
            self.tasks, self.tasks_per_node = tasks, None
        if cores_per_task is not None:
            self.cores_per_task = cores_per_task
        if gpus_per_task is not None:
            self.gpus_per_task, self.gpus_per_node, self.gpus = gpus_per_task, None, None


@dataclass(frozen=True, slots=True)
class Slots:
    """The layout of the allocation: `count` slots of `cores` and `gpus`, over `nodes` (None: anywhere).

    `whole_nodes` takes the nodes exclusively; `tasks` is what the script's own launcher starts by default.
    """

    count: int
    cores: int
    gpus: int
    nodes: int | None
    whole_nodes: bool
    tasks: int


def slots_of(asked: Resources) -> Slots:
    """The slots for `asked`.

    Nodes without tasks mean whole nodes, as ``flux batch -N`` takes them, unless cores or GPUs say how much of each.

    Raises:
        InvalidInput: numbers that contradict each other, with what to write.
    """
    nodes = asked.nodes
    if nodes is None and (asked.gpus_per_node is not None or (asked.exclusive and asked.tasks is None)):
        nodes = 1
    if asked.tasks_per_node is not None and asked.tasks is not None:
        nodes = nodes if nodes is not None else -(-asked.tasks // asked.tasks_per_node)
        tasks = asked.tasks
    elif asked.tasks_per_node is not None:
        nodes = nodes or 1
        tasks = nodes * asked.tasks_per_node
    else:
        tasks = asked.tasks if asked.tasks is not None else nodes or 1
    if nodes is not None and tasks < nodes:
        raise InvalidInput(f"{nodes} nodes for {tasks} tasks leaves nodes idle: ask for at most as many nodes")
    if asked.exclusive and nodes is None:
        raise InvalidInput("exclusive nodes need a number of nodes: add it to the script, or -N to the command line")
    sized = (asked.cores_per_task, asked.gpus_per_task, asked.gpus_per_node, asked.gpus)
    unsized = asked.tasks is None and asked.tasks_per_node is None and all(value is None for value in sized)
    whole = asked.exclusive or (asked.nodes is not None and unsized)
    cores = asked.cores_per_task or 1
    if asked.gpus_per_task is not None and asked.gpus_per_node is None and asked.gpus is None:
        return Slots(tasks, cores, asked.gpus_per_task, nodes, whole, tasks)
    per_node = asked.gpus_per_node
    if asked.gpus is not None and nodes is not None:
        per_node = _divided(asked.gpus, nodes, "nodes")
    if per_node is not None and nodes is not None:
        # One slot a node: GPUs of a node need not divide among its tasks.
        return Slots(nodes, cores * -(-tasks // nodes), per_node, nodes, whole, tasks)
    if asked.gpus is not None:
        if asked.tasks is None:
            return Slots(max(1, asked.gpus), cores, min(1, asked.gpus), None, whole, 1)
        return Slots(tasks, cores, _divided(asked.gpus, tasks, "tasks"), None, whole, tasks)
    return Slots(tasks, cores, 0, nodes, whole, tasks)


def _divided(gpus: int, by: int, what: str) -> int:
    if gpus % by:
        raise InvalidInput(f"{gpus} GPUs do not divide among {by} {what}: say how many each {what[:-1]} gets")
    return gpus // by
