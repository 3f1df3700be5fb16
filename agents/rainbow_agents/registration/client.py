"""Registers the cluster, keeps the registration fresh, and hands out what it brought: the agent's token and keys.

A registration that is kept in the state folder is enough to start with: the registrar need not be there. It is made
anew at start, when the resources changed, when told to (`resync`), when a dispatch carries a signature these keys do
not make, and well before the agent's own token runs out.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping

from rainbow.backoff import Backoff
from rainbow.client.credentials import peek
from rainbow.client.rpc import Rpc
from rainbow.errors import BadCredentials, BadSignature, Conflict, Denied, InvalidInput, RainbowError
from rainbow.resources.readers.summary import Summary
from rainbow.security import signing
from rainbow_agents.identity import Identity, Registration

log = logging.getLogger(__name__)

#: Part of a token's lifetime after which it is renewed.
_RENEW_AT = 0.66
#: Seconds between registrations made because of a signature, so that forged dispatches cannot make us a nuisance.
_REFRESH_EVERY = 5.0


class RegistrationClient:
    """The agent's side of registration. `token` or `secret` opens the first one; see `Identity` for what is kept.

    `on_loss` is called when the scheduler's side had forgotten the cluster, before that is written down: should it
    raise, it is called again with the next registration.
    """

    def __init__(
        self,
        *,
        cluster: str,
        identity: Identity,
        summary: Callable[[], Summary],
        token: str | None = None,
        secret: str | None = None,
        matcher: str = "count",
        on_change: Callable[[], None] = lambda: None,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = cluster
        self.identity = identity
        self._summary = summary
        self._token = token
        self._secret = secret
        self._matcher = matcher
        self._on_change = on_change
        self._on_loss = on_loss
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._refreshed = threading.Condition()
        self._serial = 0
        self._last = 0.0
        self._met: set[str] = set()
        self.current: Registration | None = None
        self._renew_at = 0.0
        self._why = "start"
        kept = identity.load()
        if kept is not None and kept.cluster == cluster:
            self._use(kept)

    def use(self, registration: Registration) -> None:
        """Start with a registration made elsewhere (`rainbow register --save`)."""
        self._use(registration)

    # -- what others read ----------------------------------------------------------------------------------

    @property
    def registered(self) -> bool:
        return self.current is not None

    def token(self) -> str | None:
        """What speaks for this agent now: its own token, before there is one the token to register with."""
        current = self.current
        if current is not None and _lives(current.secret):
            return current.secret
        return self._token or (current.secret if current is not None else None)

    def check(self, body: bytes, signature: object) -> None:
        """Raise BadSignature unless the scheduler signed `body` for this cluster's registration."""
        current = self.current
        if current is None:
            raise BadSignature("this agent is not registered yet")
        signing.check(current.signing, body, signature)
        kid = signing.key_of(signature)
        if kid != next(iter(current.signing)) and kid not in self._met:
            # A key we knew before it was used. Our token is of an older one still, which will be dropped some day.
            self._met.add(kid)
            self.request("the scheduler signs with another key")

    def headers(self, body: bytes) -> dict[str, str]:
        """The headers of a message of ours with `body`."""
        current = self.current
        if current is None:
            return {"rainbow-cluster": self.cluster}
        return {
            signing.HEADER: signing.sign(current.signing, body),
            "rainbow-cluster": self.cluster,
            "rainbow-registration": current.registration,
        }

    def request(self, why: str) -> int:
        """Ask for a registration to be made soon. Gives a serial: see `wait_newer`."""
        with self._refreshed:
            serial = self._serial
        self._why = why
        self._wanted.set()
        return serial

    def wait_newer(self, serial: int, timeout: float) -> bool:
        """Whether a registration was made after `serial`, waiting for it at most `timeout` seconds."""
        with self._refreshed:
            return self._refreshed.wait_for(lambda: self._serial > serial, timeout)

    @property
    def serial(self) -> int:
        return self._serial

    # -- registering ----------------------------------------------------------------------------------------

    def register(self, rpc: Rpc, timeout: float = 30.0) -> Registration:
        """Register once. Raises what the registrar answers; Denied when there is nothing to register with."""
        summary = self._summary()
        refused: Denied | None = None
        for token in self._tokens():
            request = {
                "op": "register",
                "version": 1,
                "cluster": self.cluster,
                "identity": self.identity.name,
                "summary": summary.to_bytes(),
                "matcher": self._matcher,
                **({"token": token} if token else {"secret": self._secret}),
            }
            try:
                made = Registration.from_result(rpc.call(request, timeout))
            except BadCredentials:
                raise
            except Denied as exc:  # our own token may have been revoked: the one to register with may still do
                refused = exc
                continue
            with self._lock:
                before = self.current
                changed = before != made
                if before is not None and before.since and before.since != made.since:
                    self._on_loss()
                self._use(made)
                if changed:
                    self.identity.save(made)
            with self._refreshed:
                self._serial += 1
                self._last = time.monotonic()
                self._refreshed.notify_all()
            log.info(
                "registered cluster %s",
                self.cluster,
                extra={"action": "register", "registration": made.registration, "why": self._why},
            )
            if changed:
                self._on_change()
            return made
        raise refused or Denied(
            f"nothing to register cluster {self.cluster} with: set a register token "
            "(`rainbow token issue --role register`, then token or token_file in the settings, or RAINBOW_TOKEN)"
        )

    def run(self, rpc: Rpc, stop: threading.Event) -> None:
        """Keep the registration fresh until `stop`. Ends with Denied or Conflict when that cannot be mended."""
        backoff = Backoff(0.5, 30.0)
        self._wanted.set()
        while not stop.is_set():
            if not self._wanted.wait(min(1.0, max(0.05, self._renew_at - time.time()))):
                if self._renew_at and time.time() >= self._renew_at:
                    self.request("the token is to be renewed")
                continue
            quiet = self._last + _REFRESH_EVERY - time.monotonic()
            if self._last and quiet > 0 and self._why != "resync" and stop.wait(quiet):
                return
            self._wanted.clear()
            try:
                self.register(rpc, timeout=15.0)
            except (BadCredentials, Denied, Conflict):
                raise
            except InvalidInput as exc:
                # Our own graph or settings: no use in going on if nothing was ever registered.
                if self.current is None:
                    raise
                log.error("the registration cannot be renewed: %s", exc, extra={"action": "register"})  # noqa: TRY400
                backoff.wait(stop)
                self._wanted.set()
            except RainbowError as exc:
                log.warning("registration did not work, trying again: %s", exc, extra={"action": "register"})
                if backoff.wait(stop):
                    return
                self._wanted.set()
            else:
                backoff.reset()

    # -- inside ------------------------------------------------------------------------------------------------

    def _use(self, registration: Registration) -> None:
        self.current = registration
        claims: Mapping[str, object] = peek(registration.secret)
        expires, issued = claims.get("exp"), claims.get("iat")
        if isinstance(expires, int | float) and isinstance(issued, int | float):
            self._renew_at = issued + (expires - issued) * _RENEW_AT
        else:
            self._renew_at = 0.0

    def _tokens(self) -> list[str | None]:
        """What to register with, in order; None stands for the shared secret."""
        out: list[str | None] = []
        current = self.current
        if current is not None and _lives(current.secret):
            out.append(current.secret)
        if self._token:
            out.append(self._token)
        if self._secret:
            out.append(None)
        return out


def _lives(token: str) -> bool:
    expires = peek(token).get("exp")
    return not isinstance(expires, int | float) or expires > time.time()
