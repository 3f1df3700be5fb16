"""One request, one cluster."""

from __future__ import annotations

from rainbow.jobspec.request import Request
from rainbow.resources.matching.answer import Answer
from rainbow.resources.matching.explain import explain
from rainbow.resources.matching.matcher import BUDGET_S, Algorithms, Matcher, MatcherName
from rainbow.resources.readers.summary import Summary


def match(
    request: Request,
    summary: Summary,
    *,
    matcher: MatcherName = "count",
    budget_s: float = BUDGET_S,
    algorithms: Algorithms | None = None,
) -> Answer:
    """Can `request` ever run on the empty cluster, and how many of it at once?

    Args:
        request: What is asked for.
        summary: The cluster.
        matcher: ``fluxion`` also asks whether Fluxion's own walk would find it.
        budget_s: Seconds for competing siblings; when they are used up the answer is "no", coded ``budget``.
        algorithms: Match algorithms by name, in place of the installed plugins.

    Raises:
        UnknownPlugin: A requirement names a match algorithm that is not installed.
        InvalidInput: A hostlist or idset of the constraint is malformed.
    """
    return answer(Matcher(request, budget_s=budget_s, algorithms=algorithms), summary, matcher)


def answer(asked: Matcher, summary: Summary, matcher: MatcherName = "count") -> Answer:
    """As `match`, with what was remembered from other clusters."""
    view = asked.view(summary)
    above = summary.root.above
    if view is not None and asked.fits(view, above, matcher):
        return Answer(True, asked.copies(view, above))
    return Answer(False, 0, explain(asked, summary, view, matcher))
