"""What an agent keeps of itself between runs, in its state folder: who it is, and what registration gave it.

`identity` is made once, before the first try to register, so that a registration whose answer was lost can be
repeated by the same agent. Files are 0600 and replaced whole.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from rainbow.errors import InvalidSettings
from rainbow_agents.state import private_folder, write_once, write_private


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


_MACHINE_ID = Path("/etc/machine-id")
"""Many containers have none."""


def _check_place(state_dir: Path) -> None:
    """Refuse a copy of a state folder: two agents with one identity would end each other's held jobs.

    Raises:
        InvalidSettings: The folder was copied, or moved to another host.
    """
    try:
        machine = _MACHINE_ID.read_text().strip()
    except OSError:
        machine = ""
    here = f"{machine} {(state_dir / 'identity').stat().st_ino}".strip()
    if write_once(state_dir / "place", here) != here:
        raise InvalidSettings(
            f"state folder {state_dir} is a copy: its jobs and its registration belong to the agent that it was copied "
            f"from. Start a new agent with an empty folder; or, if that agent is gone for good, remove "
            f"{state_dir / 'place'}"
        )


class Identity:
    """The state folder's `identity` and `registration.json` of one cluster."""

    def __init__(self, state_dir: Path) -> None:
        with private_folder(state_dir):
            self.name = self._name(state_dir / "identity")
            _check_place(state_dir)
        self._file = state_dir / "registration.json"

    @staticmethod
    def _name(path: Path) -> str:
        with contextlib.suppress(FileNotFoundError):
            if len(path.read_text().strip()) < 8:  # cut short by a disk that was full
                path.unlink()
        # Two agents of one cluster may start at once on one folder: the first to write its file wins.
        return write_once(path, secrets.token_hex(16))

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
