"""What a job waits for before it may start: other jobs (dependencies), as Flux (RFC 26) and Slurm write them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rainbow.errors import InvalidInput
from rainbow.models.ids import read_id

#: What a job may wait for: that another one has started, has ended, has not completed, has completed.
SCHEMES = ("after", "afterany", "afternotok", "afterok")
#: The code of a job that is held until others have started or ended.
DEPENDENCY = "dependency"
#: As many jobs as one job may wait for.
MAX_DEPENDENCIES = 10_000

#: A scheme and the id of a job.
Dependency = tuple[str, str]


def read_dependencies(value: str | Sequence[str]) -> tuple[Dependency, ...]:
    """Read ``SCHEME:ID[:ID...]``, several separated by commas, or a list of these; each is kept once.

    Raises:
        InvalidInput: a scheme that is none of SCHEMES, or an id that is none of rainbow's.
    """
    texts = [value] if isinstance(value, str) else value
    found = dict.fromkeys(one for text in texts for part in text.split(",") for one in _read(part.strip()))
    if len(found) > MAX_DEPENDENCIES:
        raise InvalidInput(f"{len(found)} dependencies are too many: at most {MAX_DEPENDENCIES} are taken")
    return tuple(found)


def _read(text: str) -> Iterable[Dependency]:
    scheme, colon, rest = text.partition(":")
    if scheme not in SCHEMES or not colon:
        raise InvalidInput(f"dependency {text[:80]!r}: write {', '.join(f'{s}:ID' for s in SCHEMES)}, comma between")
    for one in rest.split(":"):
        try:
            yield scheme, read_id(one)
        except ValueError:
            raise InvalidInput(f"dependency {text[:80]!r}: {one[:40]!r} is no id of a job of rainbow") from None


def written(dependencies: Iterable[Dependency]) -> list[str]:
    """Dependencies as text, one each."""
    return [f"{scheme}:{job_id}" for scheme, job_id in dependencies]


def judge(scheme: str, state: str, *, started: bool, ended: bool) -> bool | None:
    """Whether a job in `state` meets `scheme`; None when that is not known yet.

    As in Slurm: ``after`` is met by a start and by any end, ``afternotok`` by any end but that of a job that completed.
    """
    if scheme == "after":
        return True if started or ended else None
    if not ended:
        return None
    return scheme == "afterany" or (state == "completed") is (scheme == "afterok")
