"""Jobs as people see them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rainbow.cli.render import output

if TYPE_CHECKING:
    from rainbow.models.job import JobRecord


def plain(record: JobRecord) -> dict[str, Any]:
    return record.model_dump(mode="json")


def table(records: Iterable[JobRecord]) -> None:
    rows = [
        (
            label(r),
            r.name,
            r.state,
            where(r),
            r.attempt if r.attempt > 1 else None,
            r.user,
            output.age(began(r)),
            why(r),
        )
        for r in records
    ]
    output.table(
        ("id", "name", "state", "cluster", "attempt", "user", "age", "detail"),
        rows,
        empty="no jobs to show",
        narrow=("name",),
    )


def label(record: JobRecord) -> str:
    """The name of a job: its id, of an element of an array ``ID[INDEX]``."""
    return record.id if record.array is None else f"{record.array}[{record.index}]"


def count(numbers: Mapping[str, int], put: Callable[[Any], None] | None) -> None:
    """Print how many jobs are in each state, by `put` as a document."""
    total = sum(numbers.values())
    put({"count": numbers, "total": total}) if put else output.fields({**numbers, "total": f"{total}"})


def lines(found: Iterable[JobRecord], show: Callable[[JobRecord], str]) -> None:
    """Print a line for each job."""
    for record in found:
        output.line(show(record))


def where(record: JobRecord) -> str | None:
    """The cluster that the job is on; None for one that is held, whichever refused it last."""
    return None if record.state == "held" else record.cluster


def began(record: JobRecord) -> float | None:
    return min(record.times.values(), default=None)


def ended(record: JobRecord) -> float | None:
    """When the job ended, in seconds since 1970; None where it has not."""
    return record.times.get("ended")


def run_time(record: JobRecord) -> float | None:
    """Seconds that the job ran, or has been running; None where it never started."""
    start = record.times.get("running")
    return None if start is None else max(0.0, (ended(record) or time.time()) - start)


def why(record: JobRecord) -> str | None:
    """The reason of a state that has one, and the exit code of a job that ran."""
    parts = []
    if record.indices is not None and (record.counts or not record.terminal):
        parts += [f"{record.code}: {record.detail}"] if record.code == "dependency" else []
        parts.append(", ".join(f"{count} {state}" for state, count in record.elements.items()))
        parts += [f"exit {record.exit_code}"] if record.exit_code else []
        parts += ["cancel asked for"] if record.cancel_requested and not record.terminal else []
        return "; ".join(parts)
    if record.returncode is not None:
        parts.append(f"exit {record.returncode}")
    if record.code:
        parts.append(f"{record.code}: {record.detail}" if record.detail else record.code)
    elif record.detail:
        parts.append(record.detail)
    if record.cancel_requested and not record.terminal:
        parts.append("cancel asked for")
    return "; ".join(parts) or None


def line(record: JobRecord) -> str:
    """A change of a job in one line."""
    place = where(record)
    on = f" on {place}" if place else ""
    attempt = f" (attempt {record.attempt})" if record.attempt > 1 else ""
    reason = why(record)
    return f"{label(record)}  {record.state}{on}{attempt}" + (f": {reason}" if reason else "")


def details(record: JobRecord) -> None:
    output.fields(
        {
            "id": record.id,
            "array": record.indices or (None if record.array is None else label(record)),
            "name": record.name,
            "state": record.state,
            "cluster": where(record),
            "attempt": record.attempt or None,
            "user": record.user,
            "flux id": record.flux_id,
            ("elements" if record.indices else "reason"): why(record),
            "run time": None if (seconds := run_time(record)) is None else output.span(seconds),
            **{f"{state} at": output.stamp(at) for state, at in sorted(record.times.items(), key=lambda i: i[1])},
        }
    )
    if record.output:
        output.line("")
        output.line(record.output.rstrip("\n"))
