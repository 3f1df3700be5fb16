"""A submission is only taken for a repeat when nothing but its id differs."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rainbow import codec
from rainbow.jobspec import read
from rainbow.models.job import SubmitRequest
from rainbow_workers.scheduling.parse_cache import Known, ParseCache

JOBSPEC = read({"version": 1, "resources": {"a": {"type": "node", "count": 1}}})


def body(**fields: Any) -> bytes:
    return codec.encode_json({"token": "t", "command": ["true"], **fields})


def request(raw: bytes) -> SubmitRequest:
    return SubmitRequest.model_validate(codec.decode(raw))


def learnt(*bodies: bytes, **bounds: int) -> ParseCache:
    repeats = ParseCache(**bounds)
    for raw in bodies:
        repeats.add(raw, request(raw), JOBSPEC)
    return repeats


def read_as(found: tuple[str | None, Known] | None) -> tuple[str | None, SubmitRequest, Any] | None:
    return None if found is None else (found[0], found[1].request, found[1].jobspec)


def new_id() -> str:
    return str(uuid.uuid4())


def test_another_id_is_a_repeat() -> None:
    first, second = body(id=new_id()), body(id=(other := new_id()))
    assert read_as(learnt(first).find(second)) == (other, request(first), JOBSPEC)


def test_without_id() -> None:
    assert read_as(learnt(body()).find(body())) == (None, request(body()), JOBSPEC)
    assert learnt(body()).find(body(id=new_id())) is None


def test_anything_else_that_differs_is_no_repeat() -> None:
    first = body(id=new_id())
    repeats = learnt(first)
    for other in (body(id=new_id(), nodes=2), body(id=new_id(), name="x"), first + b" ", body(id="not-one")):
        assert repeats.find(other) is None


def test_an_id_elsewhere_is_not_cut_out() -> None:
    """What looks like an id may be a value of the job."""
    orders: tuple[Callable[[str, str], bytes], ...] = (
        lambda inner, outer: body(environment={"id": inner}, id=outer),
        lambda inner, outer: body(id=outer, environment={"id": inner}),
        lambda inner, outer: body(environment={"id": inner, "x": outer}, id=outer),
    )
    for made in orders:
        inner, outer = new_id(), new_id()
        repeats = learnt(made(inner, outer), made(outer, outer))
        other = made(new_id(), outer)
        found = repeats.find(other)
        assert found is None or found[1].request.environment == request(other).environment


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from("abc"), st.booleans()), max_size=12))
def test_what_is_found_is_what_reading_gives(sent: list[tuple[bool, str, str, bool]]) -> None:
    ids = {letter: new_id() for letter in "abc"}
    repeats = ParseCache()
    for first, own, other, text in sent:
        fields: list[tuple[str, Any]] = [("id", ids[own]), ("environment", {"id": ids[other]})]
        if text:
            fields.append(("name", f'"id":"{ids[other]}"'))
        raw = body(**dict(fields if first else reversed(fields)))
        found = repeats.find(raw)
        whole = request(raw)
        if found is not None:
            assert found[0] == whole.id
            assert found[1].request.model_copy(update={"id": whole.id}) == whole
        repeats.add(raw, whole, JOBSPEC)


def test_bounded() -> None:
    bodies = [body(id=new_id(), nodes=n) for n in range(1, 50)]
    assert sum(learnt(*bodies, max_entries=10).find(b) is not None for b in bodies) == 10
    kept = learnt(*bodies, max_bytes=10 * (len(bodies[0]) - 36))
    assert 0 < sum(kept.find(b) is not None for b in bodies) <= 11
