"""From what a caller says of a job to the message that submits it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path, PurePath
from typing import Any, TypedDict

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow.errors import InvalidInput, TooLarge
from rainbow.models.job import SIMPLE_FORM, SubmitRequest
from rainbow.models.wire import parse

#: As many tokens as one submission may carry.
_MAX_TOKENS = 256


class JobFields(TypedDict, total=False):
    """A job as a caller gives it: `jobspec`, or `command` and the simple form. All are optional but one of these two.

    `jobspec` is a mapping, YAML or JSON text, or the path of a file. `duration` is in seconds, or text (``"1h"``).
    `match` and `selection` name a plugin, or are ``{"name": …, "options": {…}}``. `hold` is how many seconds to wait
    for a cluster when none can take the job now. `priority` is 1 to 31, Flux's urgency (0, its hold, is refused).
    `expires` is RFC 3339 text, a datetime, or seconds since 1970; one without a zone is local time. So is `begin_time`,
    before which it does not start. `dependency` says which jobs it waits for: ``"afterok:ID"`` (also ``after``,
    ``afterany``, ``afternotok``). `id` is a UUID: submitting the same again runs it once. `account` is what the job is
    charged to. `array` (``"1-100"``, ``"0-15:4%2"``) makes it a job for each index, with the id ``ID[INDEX]``.
    `stage_in` are files here, as ``FILE`` or ``FILE:PATH``, that the job finds in its working directory; `stage_out`
    are paths in it that the job leaves, which `Job.fetch` brings home.
    """

    id: str
    command: Sequence[str | PurePath] | str
    jobspec: Mapping[str, Any] | str | Path
    nodes: int
    tasks: int
    cores_per_task: int
    gpus_per_task: int
    duration: float | int | str | timedelta
    cwd: str | PurePath
    environment: Mapping[str, str | int | float | bool]
    name: str
    account: str
    image: str
    requires: Sequence[Mapping[str, Any]]
    compatibility: Sequence[Mapping[str, Any]]
    clusters: Sequence[str]
    match: str | Mapping[str, Any]
    selection: str | Mapping[str, Any]
    satisfy_only: bool
    hold: float
    priority: int
    expires: str | float | datetime
    dependency: str | Sequence[str]
    begin_time: str | float | datetime
    array: str
    stage_in: Sequence[str | PurePath]
    stage_out: Sequence[str]


def read_jobspec(path: Path, max_bytes: int) -> str:
    """The text of a jobspec file. Raises InvalidInput, TooLarge."""
    try:
        size = path.stat().st_size
        if size > max_bytes:
            raise TooLarge(f"jobspec {path} has {size} bytes: a submission may have {max_bytes}")
        return path.read_text()
    except (OSError, UnicodeDecodeError) as exc:
        why = getattr(exc, "strerror", None) or "it is not UTF-8 text"
        raise InvalidInput(f"jobspec {path} cannot be read: {why}") from None


def _plain(value: Any) -> Any:
    """Tuples, other mappings and times as the wire has them."""
    if isinstance(value, datetime):
        return value.astimezone().timestamp()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _local(text: str) -> str | float:
    """A time without a zone is the local time here; messages have to name one."""
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError):
        return text  # the model says what is wrong


def build(fields: Mapping[str, Any], *, max_bytes: int = codec.MAX_BYTES) -> SubmitRequest:
    """The request for `fields` (see JobFields; None stands for left out), with an id of its own if none is given.

    Raises InvalidInput naming the field.
    """
    given = {key: value for key, value in fields.items() if value is not None}
    if isinstance(given.get("jobspec"), Path):
        given["jobspec"] = read_jobspec(given["jobspec"], max_bytes)
    data = {key: _plain(value) for key, value in given.items()}
    for name in ("expires", "begin_time"):
        if isinstance(data.get(name), str):
            data[name] = _local(data[name])
    data.setdefault("id", str(uuid.uuid4()))
    return parse(SubmitRequest, data)


def document_of(request: SubmitRequest) -> dict[str, Any]:
    """The jobspec that `request` carries, or that is made of its simple form. Raises InvalidJobspec."""
    from rainbow.jobspec import read  # not for those who only submit
    from rainbow.jobspec.dialects.simple import simple

    if isinstance(request.jobspec, dict):
        read(request.jobspec)
        return request.jobspec
    if request.jobspec is not None:
        return dict(read(request.jobspec).document)
    given = {name: value for name in SIMPLE_FORM if (value := getattr(request, name)) is not None}
    return simple(request.command or [], **given, name=request.name, image=request.image)


def message(request: SubmitRequest, tokens: Sequence[str], reply_to: str | None, *, max_bytes: int) -> Message:
    """The message that submits `request`, which has an id. Raises TooLarge naming the limit."""
    if len(tokens) > _MAX_TOKENS:
        raise InvalidInput(
            f"{len(tokens)} cluster tokens are too many for one submission (at most {_MAX_TOKENS}): name the clusters"
        )
    data = request.model_dump(exclude_none=True, exclude_defaults=True)
    data["version"] = request.version
    if len(tokens) == 1:
        data["token"] = tokens[0]
    elif tokens:
        data["tokens"] = list(tokens)
    body = codec.encode_json(data)
    if len(body) > max_bytes:
        raise TooLarge(f"the submission has {len(body)} bytes: at most {max_bytes} are taken")
    return Message(
        exchange=topology.SUBMIT,
        routing_key="submit",
        body=body,
        content_type=codec.JSON,
        message_id=request.id,
        correlation_id=request.id,
        reply_to=reply_to,
    )
