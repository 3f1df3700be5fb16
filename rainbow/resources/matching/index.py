"""What a scheduler keeps in memory of all clusters, to answer "which of them can run this" at once.

Clusters are grouped by folded root and matcher, so that equal clusters are matched once. Answers are kept by
request and brought up to date for what changed since; how busy clusters are is no part of it. One thread.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import overload

from rainbow.jobspec.request import Request
from rainbow.resources.graph.shape import Shape
from rainbow.resources.matching.answer import Unmet
from rainbow.resources.matching.explain import explain
from rainbow.resources.matching.matcher import BUDGET_S, Algorithms, Matcher, MatcherName
from rainbow.resources.readers.summary import Summary

MAX_REQUESTS = 512
"""Requests of different shape whose answers are kept."""


class Group:
    """Clusters that no request without constraint and requirements can tell apart."""

    __slots__ = ("above", "matcher", "names", "root")

    def __init__(self, root: Shape, above: frozenset[str], matcher: MatcherName) -> None:
        self.root, self.above, self.matcher = root, above, matcher
        self.names: list[str] = []


class Names(Sequence[str]):
    """Several lists of names as one sequence, without copying them."""

    __slots__ = ("_lists", "_starts")

    def __init__(self, lists: list[list[str]]) -> None:
        self._lists = [names for names in lists if names]
        self._starts = [0]
        for names in self._lists:
            self._starts.append(self._starts[-1] + len(names))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(self._lists)

    def __contains__(self, name: object) -> bool:
        return any(name in names for names in self._lists)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return list(self)[at]
        total = self._starts[-1]
        if at < 0:
            at += total
        if not 0 <= at < total:
            raise IndexError(at)
        row = bisect_right(self._starts, at) - 1
        return self._lists[row][at - self._starts[row]]


class Matches:
    """The answer to one request. Valid until the index changes; ask the index again then (it is cheap)."""

    __slots__ = ("_index", "_matcher", "_seen", "candidates", "version")

    def __init__(self, index: ClusterIndex, matcher: Matcher) -> None:
        self._index = index
        self._matcher = matcher
        self._seen: dict[str, tuple[Summary, bool]] = {}
        self.version = -1
        self.candidates: Sequence[str] = ()
        """Names of the clusters that can run it, in a stable order. Not to be changed."""

    def __len__(self) -> int:
        return len(self.candidates)

    def __bool__(self) -> bool:
        return len(self.candidates) > 0

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._index and self._matches(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.candidates)

    def unmet(self, name: str) -> tuple[Unmet, ...]:
        """Why cluster `name` cannot run it; empty when it can. Raises KeyError for an unknown cluster."""
        if self._matches(name):
            return ()
        entry = self._index.entry(name)
        view = self._matcher.view(entry.summary)
        return explain(self._matcher, entry.summary, view, entry.group.matcher)

    def slots(self, name: str) -> int:
        """How many of the request cluster `name` takes at once when empty; 0 when it cannot run it."""
        if not self._matches(name):
            return 0
        summary = self._index.entry(name).summary
        view = self._matcher.view(summary)
        return 0 if view is None else self._matcher.copies(view, summary.root.above)

    def _matches(self, name: str) -> bool:
        entry = self._index.entry(name)
        if self._matcher.plan.by_shape_alone:
            return self._matcher.fits(entry.group.root, entry.group.above, entry.group.matcher)
        known = self._seen.get(name)
        if known is not None and known[0] is entry.summary:
            return known[1]
        view = self._matcher.view(entry.summary)
        found = view is not None and self._matcher.fits(view, entry.summary.root.above, entry.group.matcher)
        self._seen[name] = (entry.summary, found)
        return found

    def refresh(self) -> None:
        """Bring the answer up to date: only what is new is matched."""
        index = self._index
        if self.version == index.version:
            return
        self.version = index.version
        if self._matcher.plan.by_shape_alone:
            fits = self._matcher.fits
            lists = [g.names for g in index.groups if fits(g.root, g.above, g.matcher)]
            self.candidates = lists[0] if len(lists) == 1 else Names(lists)
            return
        if len(self._seen) > 2 * len(index):
            self._seen = {name: known for name, known in self._seen.items() if name in index}
        self.candidates = [name for name in index.names() if self._matches(name)]


class Entry:
    """One cluster in the index."""

    __slots__ = ("group", "summary")

    def __init__(self, summary: Summary, group: Group) -> None:
        self.summary, self.group = summary, group


class ClusterIndex:
    """All clusters, and the answers about them.

    >>> index = ClusterIndex()
    >>> index.query(request).candidates  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        budget_s: float = BUDGET_S,
        algorithms: Algorithms | None = None,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self._budget_s = budget_s
        self._algorithms = algorithms
        self._max = max_requests
        self._entries: dict[str, Entry] = {}
        self._groups: dict[tuple[Shape, MatcherName], Group] = {}
        self._answers: OrderedDict[Request, Matches] = OrderedDict()
        self.version = 0

    def update(self, name: str, summary: Summary, matcher: MatcherName = "count") -> None:
        """Add a cluster or replace what is known of it. The same summary again changes nothing."""
        known = self._entries.get(name)
        if known is not None:
            if known.summary is summary and known.group.matcher == matcher:
                return
            if known.group.root is summary.root and known.group.matcher == matcher:
                known.summary = summary
                self.version += 1
                return
            self._leave(name, known.group)
        key = (summary.root, matcher)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(summary.root, summary.root.above, matcher)
        group.names.append(name)
        self._entries[name] = Entry(summary, group)
        self.version += 1

    def remove(self, name: str) -> None:
        """Forget a cluster. Unknown names are ignored."""
        known = self._entries.pop(name, None)
        if known is not None:
            self._leave(name, known.group)
            self.version += 1

    def _leave(self, name: str, group: Group) -> None:
        group.names.remove(name)
        if not group.names:
            del self._groups[group.root, group.matcher]

    def query(self, request: Request) -> Matches:
        """Which clusters can run `request`.

        Raises:
            UnknownPlugin, InvalidInput: as `match`.
        """
        answers = self._answers
        found = answers.get(request)
        if found is None:
            matcher = Matcher(request, budget_s=self._budget_s, algorithms=self._algorithms)
            found = Matches(self, matcher)
            found.refresh()
            answers[request] = found
            if len(answers) > self._max:
                answers.popitem(last=False)
            return found
        answers.move_to_end(request)
        if found.version != self.version:
            found.refresh()
        return found

    # -- what it holds ---------------------------------------------------------------------------

    @property
    def groups(self) -> list[Group]:
        return list(self._groups.values())

    def names(self) -> Iterator[str]:
        return iter(self._entries)

    def entry(self, name: str) -> Entry:
        """Raises KeyError for an unknown cluster."""
        return self._entries[name]

    def summary(self, name: str) -> Summary:
        """Raises KeyError for an unknown cluster."""
        return self._entries[name].summary

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries
