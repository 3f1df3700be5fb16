"""What is set for users and accounts: by the settings, and above them by an administrator, in the store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import ValidationError

from rainbow.models.shares import Level, ShareTerms

log = logging.getLogger(__name__)

_NOTHING = ShareTerms()


@dataclass(frozen=True, slots=True)
class SharePolicy:
    """Who gets how much, by the settings.

    Attributes:
        users: What is set for users; a weight of 1 for the others.
        accounts: Likewise for accounts.
        half_life: Seconds after which usage counts half.
    """

    users: Mapping[str, ShareTerms] = field(default_factory=dict)
    accounts: Mapping[str, ShareTerms] = field(default_factory=dict)
    half_life: float = 3600.0


def name_of(level: Level, name: str) -> str:
    """Under which name the store keeps what an administrator set."""
    return f"{level}:{name}"


class ShareTable:
    """What holds for whom. Replaced as a whole when it changes: read by any thread."""

    def __init__(self, policy: SharePolicy) -> None:
        self._settings: Mapping[Level, Mapping[str, ShareTerms]] = {"user": policy.users, "account": policy.accounts}
        self._kept: Mapping[str, str] = {}
        self._set: Mapping[str, ShareTerms] = {}
        #: Rises when anything is set.
        self.version = 0
        self._all = self._made()

    def follow(self, kept: Mapping[str, str]) -> None:
        """Take over what the store has."""
        if kept == self._kept:
            return
        self._kept = kept
        found = {}
        for name, text in kept.items():
            try:
                found[name] = ShareTerms.model_validate_json(text)
            except ValidationError:
                log.warning("what the store has of %s cannot be read: set it again", name, extra={"action": "shares"})
        self._set = found
        self._all = self._made()
        self.version += 1

    def terms(self, level: Level, name: str) -> ShareTerms:
        """What holds for a user or an account."""
        return self._all[level].get(name, _NOTHING)

    def weight(self, level: Level, name: str) -> float:
        """Its weight: 1 if none is set."""
        known = self._all[level].get(name)
        return known.weight if known is not None and known.weight is not None else 1.0

    @property
    def bounded(self) -> bool:
        """Whether there is a limit for anybody."""
        return self._bounded

    def names(self, level: Level) -> frozenset[str]:
        """Those for whom something is set."""
        return frozenset(self._all[level])

    def set_by_admin(self, level: Level, name: str) -> ShareTerms | None:
        """What an administrator set; None if nothing."""
        return self._set.get(name_of(level, name))

    def _made(self) -> Mapping[Level, Mapping[str, ShareTerms]]:
        made = {level: self._level(level, settings) for level, settings in self._settings.items()}
        self._bounded = any(terms.limited for level in made.values() for terms in level.values())
        return made

    def _level(self, level: Level, settings: Mapping[str, ShareTerms]) -> dict[str, ShareTerms]:
        out = dict(settings)
        for key, terms in self._set.items():
            kind, _, name = key.partition(":")
            if kind == level:
                out[name] = terms.over(settings.get(name, _NOTHING))
        return out
