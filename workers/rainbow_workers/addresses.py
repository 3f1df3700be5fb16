"""Return addresses: where an agent's answer goes, encrypted, since the agent carries it and need not know it.

The registrar publishes through the default exchange, where a routing key names any queue there is: an agent that could
say where its answer goes could write into all of them.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rainbow import codec
from rainbow.errors import BadSignature, InvalidInput
from rainbow.security import signing
from rainbow.security.tokens import KeyRing

#: Bytes of a nonce of AES-GCM (NIST SP 800-38D, 8.2.2: drawn at random).
_NONCE = 12
_NOT_OURS = "the return address was changed or is not ours"


@dataclass(frozen=True, slots=True)
class Return:
    """Where the answer of `cluster` goes: until `until`, in seconds since 1970."""

    cluster: str
    reply_to: str
    correlation_id: str
    until: float


def encrypt(ring: KeyRing, to: Return) -> str:
    """`to` as text that only holders of `ring` can read or make."""
    data = codec.encode_msgpack({"c": to.cluster, "to": to.reply_to, "id": to.correlation_id, "until": to.until})
    kid, key = ring.signing
    nonce = os.urandom(_NONCE)
    return f"{kid}:{base64.b64encode(nonce + _cipher(key).encrypt(nonce, data, None)).decode()}"


def decrypt(ring: KeyRing, text: str) -> Return:
    """The address of which `encrypt` made `text`.

    Raises:
        BadSignature: for anything else.
    """
    kid, _, encoded = text.rpartition(":")
    key = ring.key(kid)
    if key is None:
        raise BadSignature(_NOT_OURS)
    try:
        raw = base64.b64decode(encoded, validate=True)
        data = codec.decode(_cipher(key).decrypt(raw[:_NONCE], raw[_NONCE:], None), codec.MSGPACK)
        return Return(str(data["c"]), str(data["to"]), str(data["id"]), float(data["until"]))
    except (InvalidTag, InvalidInput, binascii.Error, KeyError, TypeError, ValueError):
        raise BadSignature(_NOT_OURS) from None


def _cipher(key: bytes) -> AESGCM:
    return AESGCM(signing.derive(key, "return"))
