"""What an agent keeps of itself between runs, in its state folder: who it is, and what registration gave it.

`identity` is made once, before the first try to register, so that a registration whose answer was lost can be
repeated by the same agent. Files are 0600 and replaced whole.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidSettings


@dataclass(frozen=True, slots=True)
class Registration:
    """The registrar's answer: the agent's own token, and the keys that sign (by kid, the signing one first). `since`
    is when the cluster was first registered, in seconds since 1970: another time says that its record had been lost."""

    cluster: str
    registration: str
    secret: str = field(repr=False)
    keys: Mapping[str, str] = field(repr=False)
    since: float = 0.0

    @property
    def signing(self) -> dict[str, bytes]:
        return {kid: bytes.fromhex(key) for kid, key in self.keys.items()}

    @staticmethod
    def from_result(result: Mapping[str, Any]) -> Registration:
        """From the result of `register`. Raises InvalidSettings when it is not one."""
        try:
            made = Registration(
                cluster=str(result["cluster"]),
                registration=str(result["registration"]),
                secret=str(result["secret"]),
                keys={str(kid): str(key) for kid, key in result["keys"].items()},
                since=float(result.get("since", 0.0)),
            )
            complete = bool(made.signing)
        except (KeyError, TypeError, ValueError, AttributeError):
            complete = False
        if not complete:
            raise InvalidSettings("the registration holds no cluster, registration, secret and keys")
        return made


def write_private(path: Path, text: str) -> None:
    """Write `path` (0600) so that a reader sees the old text or the new, also after a power cut."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


class Identity:
    """The state folder's `identity` and `registration.json` of one cluster."""

    def __init__(self, state_dir: Path) -> None:
        try:
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.name = self._name(state_dir / "identity")
        except OSError as exc:
            raise InvalidSettings(f"state folder {state_dir} cannot be used: {exc.strerror}") from None
        self._file = state_dir / "registration.json"

    @staticmethod
    def _name(path: Path) -> str:
        try:
            text = path.read_text().strip()
            if len(text) >= 8:
                return text
        except FileNotFoundError:
            pass
        # Two agents of one cluster may start at once on one folder: the first to link its file wins.
        fresh = secrets.token_hex(16)
        temporary = path.with_name(f".identity.{fresh}")
        write_private(temporary, fresh + "\n")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return path.read_text().strip()
        finally:
            temporary.unlink()
        return fresh

    @property
    def owner(self) -> str:
        """A short public mark, for jobs of ours among those of others: nothing can be done with it."""
        return sha256(self.name.encode()).hexdigest()[:16]

    def load(self) -> Registration | None:
        """What registration left, None when there is nothing (usable)."""
        try:
            return Registration.from_result(json.loads(self._file.read_text()))
        except (FileNotFoundError, ValueError, InvalidSettings):
            return None

    def save(self, registration: Registration) -> None:
        write_private(self._file, json.dumps(asdict(registration), indent=1) + "\n")
