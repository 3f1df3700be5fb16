"""Resource graphs and requests written as short texts, for tests."""

from __future__ import annotations

import re
from typing import Any

from rainbow.jobspec.request import Constraint, Count, Request, Want

Document = dict[str, Any]


def graph(text: str) -> Document:
    """``cluster(2xrack(node(4xcore,memory[2])))`` as JGF; nodes are named node0, node1, … and ranked so."""
    nodes: dict[str, Document] = {}
    edges: list[Document] = []
    tokens = re.findall(r"\d+x|[a-z_A-Z]+|\[\d+\]|[(),]", text)

    def parse(at: int) -> tuple[list[tuple[int, str, int, list[Any]]], int]:
        row: list[tuple[int, str, int, list[Any]]] = []
        while True:
            count = 1
            if tokens[at].endswith("x") and tokens[at][:-1].isdigit():
                count, at = int(tokens[at][:-1]), at + 1
            kind, size = tokens[at], 1
            inner: list[Any] = []
            at += 1
            if at < len(tokens) and tokens[at].startswith("["):
                size, at = int(tokens[at][1:-1]), at + 1
            if at < len(tokens) and tokens[at] == "(":
                inner, at = parse(at + 1)
            row.append((count, kind, size, inner))
            if at >= len(tokens) or tokens[at] == ")":
                return row, at + 1
            at += 1  # the comma

    ranks = iter(range(10_000))

    def grow(parent: str | None, row: list[tuple[int, str, int, list[Any]]]) -> None:
        for count, kind, size, inner in row:
            for _ in range(count):
                key = str(len(nodes))
                metadata: Document = {"type": kind, "size": size}
                if kind in ("node", "storage_node"):
                    metadata["rank"] = rank = next(ranks)
                    metadata["name"] = f"node{rank}"
                nodes[key] = {"metadata": metadata}
                if parent is not None:
                    edges.append({"source": parent, "target": key})
                grow(key, inner)

    grow(None, parse(0)[0])
    return {"graph": {"nodes": nodes, "edges": edges}}


def request(text: str, constraint: Constraint | None = None) -> Request:
    """``node2(slot1(core4,gpu1)),core3`` as a request; ``core2-8`` and ``core2..`` are ranges."""
    tokens = re.findall(r"[a-z_A-Z]+|\d+\.\.|\d+-\d+|\d+|[(),]", text)

    def parse(at: int) -> tuple[list[Want], int]:
        row: list[Want] = []
        while True:
            kind, number = tokens[at], tokens[at + 1]
            at += 2
            low, _, high = number.partition("-")
            count = Count(int(low), int(high or low)) if ".." not in number else Count(int(number[:-2]), None)
            inner: list[Want] = []
            if at < len(tokens) and tokens[at] == "(":
                inner, at = parse(at + 1)
            row.append(Want(kind, count, tuple(inner)))
            if at >= len(tokens) or tokens[at] == ")":
                return row, at + 1
            at += 1

    return Request(tuple(parse(0)[0]), constraint)
