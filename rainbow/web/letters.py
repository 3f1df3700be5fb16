"""Dead letters in the console: what `rainbow dead` does, for administrators, by the account of the web program.

The registrar checks the token of each look and each change, and writes the changes down in the audit log.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from rainbow.brokers.base import Broker
from rainbow.client import Client, dead_letters
from rainbow.client.dead_letters import Letter
from rainbow.errors import InvalidInput
from rainbow.security.tokens import KeyRing
from rainbow.web.gateway import Gateway

#: Letters that a page lists, and among which one is found by its key: the oldest.
MOST = 1000


class Letters:
    """Looks and changes, one at a time: a letter that one look holds is hidden from another."""

    def __init__(self, gateway: Gateway, keyring: Path) -> None:
        self._gateway = gateway
        self._keyring = keyring
        self._one = threading.Lock()

    async def all(self, token: str) -> list[Letter]:
        """The oldest letters. Raises Denied for all but administrators."""
        return await self._look(token, "list", (), lambda _, letters: list(letters))

    async def show(self, token: str, key: str) -> dict[str, Any]:
        """One letter with its body as text. Raises NotFound."""
        [found] = await self._look(token, "list", (), lambda _, letters: dead_letters.chosen(letters, [key]))
        body = found.body()
        text = body if isinstance(body, str) else json.dumps(body, indent=2, ensure_ascii=False, default=str)
        return {"letter": found, "plain": found.plain(), "body": text}

    async def settle(self, token: str, what: Literal["replay", "drop"], keys: Sequence[str], *, own: bool) -> int:
        """Replay or drop letters; how many they were. With `own`, submissions that lost their token get this one."""
        if not keys:
            raise InvalidInput("choose at least one dead letter")

        def act(broker: Broker, letters: list[Letter]) -> list[Letter]:
            chosen = dead_letters.chosen(letters, keys)
            if what == "replay":
                broker.publish([letter.replay(token if own else None) for letter in chosen]).check(30.0)
            return chosen

        return len(await self._look(token, what, keys, act))

    async def _look(
        self,
        token: str,
        what: Literal["list", "replay", "drop"],
        keys: Sequence[str],
        work: Callable[[Broker, list[Letter]], list[Letter]],
    ) -> list[Letter]:
        """Do `work` while the letters are held. What it returns is taken out of the queue, but for a look."""

        def held(client: Client) -> list[Letter]:
            client.note_dead(what, keys)
            broker = self._gateway.broker
            ring = KeyRing.load(self._keyring) if self._keyring.exists() else None
            with self._one, dead_letters.held(broker, MOST, ring) as (consumer, letters):
                found = work(broker, letters)
                if what != "list":
                    consumer.ack([letter.delivery for letter in found])
                    letters[:] = [letter for letter in letters if letter not in found]
            return found

        return await self._gateway.call(token, held)
