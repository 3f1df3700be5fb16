"""Why a job went where it went, from what its record keeps of the scheduler's answer and of each event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rainbow.cli.render import output, records

if TYPE_CHECKING:
    from rainbow.models.job import JobRecord

#: Fields of an answer that every answer has: whatever else is in it are the terms of the decision.
_ANSWER = frozenset(
    {
        "version",
        "id",
        "status",
        "cluster",
        "clusters",
        "attempt",
        "total_clusters",
        "total_matches",
        "total_mismatches",
        "reasons",
        "code",
        "error",
        "state",
    }
)


def document(record: JobRecord) -> dict[str, Any]:
    """``{id, state, cluster, attempt, answer, reasons, terms, start, history}``; `start` is how good the chosen
    cluster's bid was: ``{promised, started, late_s}``, None where it made no promise."""
    answer = record.answer or {}
    return {
        "id": record.id,
        "state": record.state,
        "cluster": record.cluster,
        "attempt": record.attempt,
        "answer": {key: value for key, value in answer.items() if key in _ANSWER and key != "reasons"} or None,
        "reasons": answer.get("reasons") or {},
        "terms": _terms(answer),
        "start": _start(record),
        "history": record.history,
    }


def show(record: JobRecord) -> None:
    answer = record.answer or {}
    output.line(records.line(record))
    if answer:
        output.line(
            f"{answer.get('total_matches', 0)} of {answer.get('total_clusters', 0)} clusters can run it"
            + (f"; {answer['error']}" if answer.get("error") else "")
        )
    terms = _terms(answer)
    selection = dict(terms.get("selection") or {})
    bids = selection.pop("bids", None) or {}
    selection.pop("promised", None)
    if "selection" in terms:
        terms["selection"] = selection
    for name, value in terms.items():
        output.line(f"{name}: {output.listing(value) if isinstance(value, Mapping) else value}")
    start = _start(record)
    if start is not None:
        output.line(_kept(start))
    if bids:
        output.line("")
        rows = [_bid(cluster, bid) for cluster, bid in sorted(bids.items())]
        output.table(("cluster", "bid", "eta", "cost", "detail"), rows, empty="")
    reasons = answer.get("reasons") or {}
    rows = [
        (cluster, "matches" if cluster in (answer.get("clusters") or ()) else "-", *_reason(reasons.get(cluster)))
        for cluster in sorted({*reasons, *(answer.get("clusters") or ())})
    ]
    chosen = records.where(record)
    if chosen:
        rows = [(name, "chosen" if name == chosen else matches, code, detail) for name, matches, code, detail in rows]
    if rows:
        output.line("")
        output.table(("cluster", "match", "reason", "detail"), rows, empty="")
    # A job that stays held says so again with each look at the clusters.
    events = [event for event in record.history if not (event.get("stale") and event.get("state") == "held")]
    if events:
        output.line("")
        output.table(("at", "state", "cluster", "attempt", "note"), [_event(event) for event in events], empty="")


def show_waiting(record: JobRecord, queue: Mapping[str, Any]) -> None:
    """What a waiting job waits for now: room on which clusters, after whom, and what its user has."""
    job = queue.get("job")
    if not job:
        return
    rows = [
        (c["name"], c["nodes_free"], c["cores_free"], c["gpus_free"], c["pending"])
        if c["registered"]
        else (c["name"], None, None, None, None)
        for c in job["clusters"]
    ]
    if rows:
        output.line("")
        output.line("clusters that fit:")
        output.table(("cluster", "nodes free", "cores free", "gpus free", "waiting there"), rows, empty="")
    output.line("")
    waiting = queue["totals"]["waiting"]
    ahead = f"{job['own_before']} older jobs of its user, and {job['users_before']} users with less for their weight"
    output.line(f"before it: {ahead} ({waiting} jobs wait in all)")
    if job.get("starts_in_s") is not None:
        output.line(f"forecast: starts in about {output.span(job['starts_in_s'])}, if all goes on as lately")
    for row in queue["users"]:
        if row["user"] == record.user and row["account"] == (record.account or row["account"]):
            output.line(
                f"{row['user']} in account {row['account']}: share {100 * row['share']:.1f} %, had "
                f"{100 * row['usage']:.1f} %; {row['waiting']} waiting, {row['running']} running"
            )


def _start(record: JobRecord) -> dict[str, float | None] | None:
    promised = ((record.answer or {}).get("selection") or {}).get("promised")
    if promised is None:
        return None
    started = record.times.get("running")
    late = None if started is None else round(started - promised, 3)
    return {"promised": promised, "started": started, "late_s": late}


def _kept(start: Mapping[str, float | None]) -> str:
    """How the promise was kept, in a line."""
    line = f"promised to start {output.stamp(start['promised'])}"
    late = start["late_s"]
    if late is None:
        return f"{line}, not started yet"
    return f"{line}, started {output.stamp(start['started'])}: {abs(late):.1f} s {'late' if late >= 0 else 'early'}"


def _bid(cluster: str, bid: Mapping[str, Any]) -> tuple[Any, ...]:
    will, eta, cost = bid.get("will"), bid.get("eta"), bid.get("cost")
    return (
        cluster,
        "silent" if will is None else "yes" if will else "no",
        None if eta is None else f"{eta:.1f} s",
        None if cost is None else f"{cost:g}",
        bid.get("detail") or bid.get("code"),
    )


def _terms(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answer.items() if key not in _ANSWER and value not in (None, {}, [])}


def _reason(reason: Any) -> tuple[str | None, str | None]:
    if isinstance(reason, Mapping):
        return reason.get("code"), reason.get("detail")
    return (None, None) if reason is None else (str(reason), None)


def _event(event: Mapping[str, Any]) -> tuple[Any, ...]:
    note = [str(event[key]) for key in ("code", "detail", "flux_id") if event.get(key)]
    if event.get("returncode") is not None:
        note.append(f"exit {event['returncode']}")
    if event.get("stale"):
        note.append("came too late, and changed nothing")
    return (
        output.stamp(event.get("at")),
        event.get("state"),
        event.get("cluster"),
        event.get("attempt") or None,
        "; ".join(note) or None,
    )
