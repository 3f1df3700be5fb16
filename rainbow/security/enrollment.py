"""Enrollment: an agent without a token asks, an admin compares a code and approves, the agent is given its token.

Nothing secret is mailed, typed or shown: the code follows from the cluster's name and the agent's identity, which
the agent keeps for itself, and both sides compute it.
"""

from __future__ import annotations

import base64
from hashlib import sha256

_LENGTH = 12


def mark(identity: str) -> str:
    """What is kept of an agent's identity: enough to know it again, not enough to pass for it."""
    return sha256(b"rainbow/identity\0" + identity.encode()).hexdigest()


def code(cluster: str, identity: str) -> str:
    """The code that agent and admin compare, like ``3K7Q-ZT4M-B2XA`` (60 bits: not to be met by trying)."""
    digest = sha256(f"rainbow/enrollment\0{cluster}\0{mark(identity)}".encode()).digest()
    text = base64.b32encode(digest).decode()[:_LENGTH]
    return "-".join(text[i : i + 4] for i in range(0, _LENGTH, 4))


def same_code(a: str, b: str) -> bool:
    """Whether two codes are the same, however they were typed."""
    return _plain(a) == _plain(b)


def _plain(text: str) -> str:
    return "".join(text.split()).replace("-", "").upper()
