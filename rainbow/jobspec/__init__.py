"""Jobspecs of every dialect, read into one request model.

>>> from rainbow.jobspec import read
>>> read('{"version": 1, "resources": {"a": {"type": "node", "count": 2}}}').demand.nodes
2
"""

from __future__ import annotations

from rainbow.jobspec.dialects.reader import Cache, detect, read, read_cached
from rainbow.jobspec.dialects.simple import simple
from rainbow.jobspec.request import (
    Constraint,
    Count,
    Demand,
    Jobspec,
    Request,
    Requirement,
    Task,
    Want,
)

__all__ = [
    "Cache",
    "Constraint",
    "Count",
    "Demand",
    "Jobspec",
    "Request",
    "Requirement",
    "Task",
    "Want",
    "detect",
    "read",
    "read_cached",
    "simple",
]
