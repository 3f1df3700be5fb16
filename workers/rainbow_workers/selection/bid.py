"""`bid`: the candidates are asked whether they would take the job, when it would start there, and what it would cost.

Asking takes a moment: `rainbow_workers.bidding.bidder` does it. This module says whom to ask, and chooses once the
bids are in. Options:

    by        eta (default), cost, or a formula over `eta`, `cost` and all that `constraint` knows; the lowest wins
    ask       how many clusters are asked at a time (5)
    rank      whom to ask first: a formula over state and parameters, lowest first; without it, those with most room
    within    seconds that the bids of a round have to come in (2)
    rounds    when all that were asked say no, the next ones are: so many times in all (3)
    silent    what of clusters that do not answer, or are busy now: `last` (taken when no other accepts) or `never`;
              `last` unless told otherwise

A bid's `eta` is not taken on trust. What was given to a cluster since its last report is added to it, or a burst of
jobs would all go where it is quiet now; so is the time by which the cluster's jobs started later than promised
lately (`bid_error_s`, measured here). Without an ETA or a price a cluster ranks behind those that name one.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Mapping, Sequence
from typing import Any

from rainbow.errors import InvalidInput
from rainbow.formulas import Formula, FormulaError, formula
from rainbow.models.job import RETRYABLE_REJECTS
from rainbow_workers.selection.base import Choice, Fleet, JobView, Load, Offer, no_options
from rainbow_workers.selection.least_loaded import headroom
from rainbow_workers.selection.numbers import numbers
from rainbow_workers.selection.ranked import some

#: What a job without a time limit is taken to last, in seconds, where it stands in the way of another.
_LASTS = 3600.0
_MOST_ASKED = 64
#: The mean lateness of a cluster's starts, in seconds, as kept in its state.
ERROR = "bid_error_s"


class Bid:
    """Asks the candidates whether they would take the job, when it would start and what it would cost."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        no_options("bid", options, "by", "ask", "rank", "within", "rounds", "silent")
        self._by = _formula(options, "by", "eta")
        rank = options.get("rank")
        self._rank = None if rank is None else _formula(options, "rank", "")
        #: How many are asked at a time, the seconds they have, and how many times others are.
        self.asks = int(_number(options, "ask", 5, 1, _MOST_ASKED))
        self.within = _number(options, "within", 2.0, 0.1, 60.0)
        self.rounds = int(_number(options, "rounds", 3, 1, 20))
        self._silent = options.get("silent", "last")
        if self._silent not in ("last", "never"):
            raise InvalidInput("selection bid: silent is last or never")

    def shortlist(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> list[str]:
        """Whom to ask next, best first: of those that were not asked yet, at most `asks`."""
        left = [name for name in some(candidates, rng) if name not in job.offers]
        ranked = []
        for name in left:
            if self._rank is None:
                key = -round(headroom(fleet.load(name), job), 2)
            else:
                try:
                    key = self._rank.number(numbers(name, fleet, job))
                except FormulaError:
                    continue
            ranked.append((key, rng.random(), name))
        return [name for _, _, name in heapq.nsmallest(self.asks, ranked)]

    def choose(self, candidates: Sequence[str], fleet: Fleet, job: JobView, rng: random.Random) -> Choice:
        dropped: dict[str, str] = {}
        scored: list[tuple[float, float, str]] = []
        #: Who may still take it: those that are silent, then those that are busy now.
        last: list[tuple[bool, float, str]] = []
        asked = {name: job.offers[name] for name in candidates if name in job.offers}
        for name, offer in asked.items():
            load = fleet.load(name)
            room = headroom(load, job)
            if offer.bid is None:
                dropped[name] = offer.why or "it did not answer in time"
                last.append((False, -room, name))
                continue
            if not offer.bid.will:
                dropped[name] = f"it says no: {offer.bid.detail or offer.bid.code or 'no reason given'}"
                if offer.bid.code in RETRYABLE_REJECTS:
                    last.append((True, -room, name))
                continue
            try:
                values = {**numbers(name, fleet, job), **_priced(offer)}
                if offer.bid.eta is not None:
                    values["eta"] = self.expected(name, offer, load, room, fleet, job)
                scored.append((self._by.number(values), -room, name))
            except FormulaError as exc:
                dropped[name] = exc.message
        shown = {name: _shown(offer) for name, offer in asked.items()}
        terms: dict[str, Any] = {"by": self._by.text, "bids": shown}
        if scored:
            score, _, winner = min(scored)
            terms["score"] = round(score, 4)
        else:
            # A yes that cannot be compared is still better than silence.
            yes = [n for n, o in asked.items() if o.bid is not None and o.bid.will]
            if yes:
                winner = max(yes, key=lambda n: headroom(fleet.load(n), job))
                dropped.pop(winner)
            elif last and self._silent == "last":
                winner = min(last)[2]
                terms["note"] = "no cluster said yes in time: this one may"
                dropped.pop(winner)
            else:
                if not asked:
                    dropped = dict.fromkeys(candidates[:_MOST_ASKED], "it was not asked: rank cannot be worked out")
                return Choice(None, terms, dropped)
        offer = asked[winner]
        if offer.bid is not None and offer.bid.eta is not None:
            terms["promised"] = round(offer.at + offer.bid.eta, 3)
        return Choice(winner, terms, dropped)

    @staticmethod
    def expected(name: str, offer: Offer, load: Load, room: float, fleet: Fleet, job: JobView) -> float:
        """The seconds until a start there, from the bid, what was promised since, and how good its bids were so far."""
        assert offer.bid is not None
        assert offer.bid.eta is not None
        state = fleet.values(name)
        late = state.get(ERROR)
        eta = offer.bid.eta + (max(0.0, float(late)) if isinstance(late, int | float) else 0.0)
        if offer.bid.eta == 0 and room >= 0:
            return eta
        return eta + _given_since(load, state) * (job.duration or _LASTS)


def _given_since(load: Load, state: Mapping[str, Any]) -> float:
    """The share of the cluster that was given away since its last report."""
    share = 0.0
    for total, free, reported in (
        (load.total.nodes, load.free.nodes, state.get("nodes_free")),
        (load.total.cores, load.free.cores, state.get("cores_free")),
        (load.total.gpus, load.free.gpus, state.get("gpus_free")),
    ):
        if total:
            before = reported if isinstance(reported, int) and not isinstance(reported, bool) else total
            share = max(share, (before - free) / total)
    return share


def _priced(offer: Offer) -> dict[str, Any]:
    return {} if offer.bid is None or offer.bid.cost is None else {"cost": offer.bid.cost}


def _shown(offer: Offer) -> dict[str, Any]:
    if offer.bid is None:
        return {"will": None, "detail": offer.why or "no answer"}
    return offer.bid.model_dump(exclude_none=True, exclude={"id"})


def _formula(options: Mapping[str, Any], option: str, default: str) -> Formula:
    text = options.get(option, default)
    if not isinstance(text, str):
        raise InvalidInput(f"selection bid: {option} is a formula, such as 'eta + 60 * cost'")
    return formula(text)


def _number(options: Mapping[str, Any], option: str, default: float, least: float, most: float) -> float:
    value = options.get(option, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidInput(f"selection bid: {option} is a number from {least:g} to {most:g}")
    return float(value)
