"""Grants: the scheduler's signed statement that an attempt of a job was given to one registration of a cluster.

A dispatch carries its grant, and the agent returns it with the events of the job. While the ledger has the job, the
ledger decides which cluster may report it. A grant is the proof that is left when the store lost that data.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgpack

from rainbow.errors import BadSignature
from rainbow.security import signing


class Grant(NamedTuple):
    """Attempt `attempt` of job `id` belongs to `registration` of `cluster`.

    `epoch` is the epoch of the store at the assignment; times are seconds since 1970. `element` is the
    array of which the job is an element, and its index.
    """

    id: str
    attempt: int
    cluster: str
    registration: str
    user: str
    name: str | None
    submitted_at: float
    assigned_at: float
    epoch: int = 0
    element: Sequence[Any] | None = None


def issue(keys: Mapping[str, bytes], grant: Grant) -> str:
    """Sign `grant` with the first of `keys`.

    Returns:
        ``KID:SIGNATURE:DATA``, about 300 characters of ASCII.
    """
    # Earlier releases know no arrays.
    fields = grant if grant.element is not None else grant[:-1]
    data: bytes = msgpack.packb(fields, unicode_errors="surrogatepass")
    return f"{signing.sign(keys, data)}:{base64.b64encode(data).decode()}"


def verify(keys: Mapping[str, bytes], text: str) -> Grant:
    """The grant that `issue` signed.

    Raises:
        BadSignature: for anything else.
    """
    signature, _, encoded = text.rpartition(":")
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadSignature("the grant cannot be read") from None
    signing.check(keys, data, signature)
    fields: list[Any] = msgpack.unpackb(data, unicode_errors="surrogatepass")
    return Grant(*fields)
