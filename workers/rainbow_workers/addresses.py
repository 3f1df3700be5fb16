"""Addresses for an agent's answer: sealed, so that the registrar sends it to nobody but who asked.

The registrar publishes through the default exchange, where a routing key names any queue there is: an agent that could
say where its answer goes could write into all of them.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from rainbow import codec
from rainbow.errors import BadSignature, InvalidInput
from rainbow.security import signing
from rainbow.security.tokens import KeyRing


@dataclass(frozen=True, slots=True)
class Return:
    """Where the answer of `cluster` goes: until `until`, in seconds since 1970."""

    cluster: str
    reply_to: str
    correlation_id: str
    until: float


def seal(ring: KeyRing, to: Return) -> str:
    data = codec.encode_msgpack({"c": to.cluster, "to": to.reply_to, "id": to.correlation_id, "until": to.until})
    return base64.b64encode(signing.seal(ring, b"return" + data)).decode()


def unseal(ring: KeyRing, sealed: str) -> Return:
    """Raises BadSignature for anything that `seal` did not make."""
    try:
        raw = signing.unseal(ring, base64.b64decode(sealed, validate=True))
        if not raw.startswith(b"return"):
            raise BadSignature("the sealed part of the message is not a return address")
        data = codec.decode(raw[len(b"return") :], codec.MSGPACK)
        return Return(str(data["c"]), str(data["to"]), str(data["id"]), float(data["until"]))
    except (binascii.Error, InvalidInput, KeyError, TypeError, ValueError):
        raise BadSignature("the return address was changed or is not ours") from None
