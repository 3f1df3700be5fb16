"""Tokens: JWTs signed with HMAC-SHA256, and nothing else (RFC 7519; the algorithm is fixed here).

A key ring file holds keys by `kid`; the first signs, all verify, so that keys rotate without an outage.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import re
import secrets
import stat
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Literal, cast, get_args

import jwt

from rainbow.errors import Denied, InvalidInput, InvalidSettings
from rainbow.models.cluster import Revocation
from rainbow.paths import make_folder
from rainbow.security.bearer import bare, oddity

ALGORITHM = "HS256"
AUDIENCE = "rainbow"
ISSUER = "rainbow"
LEEWAY = 60.0
#: RFC 7518 3.2: a key at least as long as the hash.
MIN_KEY_BYTES = 32
#: RabbitMQ reads the login before a connection's frame size is agreed on: a token must fit into a frame of 4096 bytes
#: (AMQP 0-9-1, 2.3.5) beside the client's properties and the user name. A longer one cannot open the broker.
MAX_BROKER_BYTES = 3200
#: A token in a body, whatever that is written in; and how many of them are looked at before the body is decoded.
_IN_BODY = re.compile(rb"eyJ[A-Za-z0-9_-]{8,512}+\.[A-Za-z0-9_-]{8,16384}+\.[A-Za-z0-9_-]{40,100}+")
_LOOKED_AT = 300
_KID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ACCOUNT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_REQUIRED = ["iss", "aud", "sub", "jti", "iat", "exp", "role", "clusters"]

Role = Literal["submit", "agent", "register", "admin", "enroll"]
ROLES: tuple[str, ...] = get_args(Role)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a verified token speaks for, and where. `clusters` holds names, ``@groups`` and ``*``.

    `body_sha256` (hex) binds it to one message: see `check_body`. `accounts` are what its jobs may be
    charged to (the claim `account`), the usual one first.
    """

    sub: str
    role: Role
    clusters: frozenset[str]
    jti: str
    issued_at: float
    expires_at: float
    body_sha256: str | None = None
    accounts: tuple[str, ...] = ()

    def covers(self, cluster: str, groups: Mapping[str, frozenset[str]]) -> bool:
        """May this principal act on `cluster`, with group membership as it is now?"""
        if "*" in self.clusters or cluster in self.clusters:
            return True
        return any(cluster in groups.get(name, ()) for name in self.clusters if name.startswith("@"))


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Signing keys by `kid`, the signing one first. `next` names the one that will sign after the next rotation.

    Every verifier (other schedulers, RabbitMQ) must know a key before the first signature with it: so a new key is
    distributed first, and signs later.
    """

    keys: tuple[tuple[str, bytes], ...]
    next: str | None = None

    def __post_init__(self) -> None:
        if not self.keys:
            raise InvalidSettings("the key ring is empty: make one with `rainbow config init`")
        for kid, key in self.keys:
            if not _KID.fullmatch(kid):
                raise InvalidSettings(f"{kid[:80]!r} cannot name a key: use letters, digits, '.', '_' and '-'")
            if len(key) < MIN_KEY_BYTES:
                raise InvalidSettings(f"key {kid!r} has {len(key)} bytes: at least {MIN_KEY_BYTES} are needed")
        if self.next is not None and self.key(self.next) is None:
            raise InvalidSettings(f"the key ring has no key {self.next[:80]!r}, which it names as the next one")

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(kid for kid, _ in self.keys)})"

    @property
    def signing(self) -> tuple[str, bytes]:
        return self.keys[0]

    def key(self, kid: str) -> bytes | None:
        return next((key for name, key in self.keys if name == kid), None)

    @staticmethod
    def generate() -> KeyRing:
        return KeyRing(((_new_kid(), secrets.token_bytes(MIN_KEY_BYTES)),))

    def prepared(self) -> KeyRing:
        """With a new key that verifies already and will sign after `rotated`; itself when there is one."""
        if self.next is not None:
            return self
        kid = _new_kid()
        return KeyRing((*self.keys, (kid, secrets.token_bytes(MIN_KEY_BYTES))), kid)

    def rotated(self, keep: int = 2) -> KeyRing:
        """With the prepared signing key in front, else with a new one; the `keep` newest old ones still verify."""
        ready = self.prepared()
        assert ready.next is not None
        new = ready.key(ready.next)
        assert new is not None
        old = [(kid, key) for kid, key in ready.keys if kid != ready.next]
        return KeyRing(((ready.next, new), *old[:keep]))

    @staticmethod
    def load(path: Path) -> KeyRing:
        """Read a key ring. Raises InvalidSettings, also when others than its owner can read the file."""
        try:
            mode = path.stat().st_mode
            data = json.loads(path.read_text())
            keys = tuple((str(item["kid"]), bytes.fromhex(item["key"])) for item in data["keys"])
            following = data.get("next")
        except FileNotFoundError:
            raise InvalidSettings(f"no key ring at {path}: make one with `rainbow config init`") from None
        except (OSError, ValueError, KeyError, TypeError) as exc:
            raise InvalidSettings(f"key ring {path} cannot be read: {type(exc).__name__}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidSettings(f"key ring {path} can be read by others: run `chmod 600 {path}`")
        return KeyRing(keys, following if isinstance(following, str) else None)

    def save(self, path: Path) -> None:
        """Write the ring (mode 0600), atomically."""
        make_folder(path.parent)
        listed = [{"kid": kid, "key": key.hex()} for kid, key in self.keys]
        text = json.dumps({"keys": listed, **({"next": self.next} if self.next else {})}, indent=2)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(text + "\n")
        temporary.replace(path)


def _new_kid() -> str:
    return time.strftime("%Y%m%d-", time.gmtime()) + secrets.token_hex(4)


def issue(
    ring: KeyRing,
    *,
    sub: str,
    role: Role,
    clusters: Iterable[str] = ("*",),
    ttl: float,
    scope: Sequence[str] = (),
    body: bytes | None = None,
    accounts: Sequence[str] = (),
    now: float | None = None,
) -> str:
    """A signed token for `sub`, good for `ttl` seconds. `scope` is what RabbitMQ's OAuth 2 plugin reads.

    With `body`, it is good for one message with this body alone, and travels in its header `authorization`.
    Its jobs may be charged to `accounts`, the first one if they name none.
    Raises InvalidInput.
    """
    if role not in ROLES:
        raise InvalidInput(f"no role {role!r}: choose one of {', '.join(ROLES)}")
    if not sub or len(sub) > 255:
        raise InvalidInput("a token needs a subject of 1 to 255 characters")
    if ttl <= 0:
        raise InvalidInput("a token needs a time to live above 0 s")
    issued = time.time() if now is None else now
    kid, key = ring.signing
    claims: dict[str, object] = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": sub,
        "jti": secrets.token_hex(16),
        "iat": int(issued),
        "exp": int(issued + ttl),
        "role": role,
        "clusters": sorted(set(clusters)),
    }
    if scope:
        claims["scope"] = " ".join(scope)
    if body is not None:
        claims["body_sha256"] = sha256(body).hexdigest()
    for name in accounts:
        if not _ACCOUNT.fullmatch(name):
            raise InvalidInput(f"{name[:80]!r} cannot name an account: use letters, digits, '.', '_' and '-'")
    if accounts:
        claims["account"] = list(accounts) if len(accounts) > 1 else accounts[0]
    token = jwt.encode(claims, key, algorithm=ALGORITHM, headers={"kid": kid})
    if scope and len(token) > MAX_BROKER_BYTES:
        raise InvalidInput(
            f"a token for that many clusters is too long to open the broker ({len(token)} bytes, at most "
            f"{MAX_BROKER_BYTES}): issue several, or one for '*'"
        )
    return token


def verify(ring: KeyRing, token: str, *, now: float | None = None) -> Principal:
    """Who `token` speaks for. Raises Denied, saying why (with the measured skew where clocks differ)."""
    moment = time.time() if now is None else now
    token = bare(token)
    try:
        kid = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, TypeError):
        raise Denied(f"the token is not a token ({oddity(token)}): ask for one with `rainbow token issue`") from None
    key = ring.key(kid) if isinstance(kid, str) else None
    if key is None:
        raise Denied("the token is signed with a key this rainbow does not know: ask for a new one")
    try:
        # Times are checked below, against `moment` and with the skew in the message.
        claims = jwt.decode(
            token,
            key,
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            options={"require": _REQUIRED, "verify_exp": False, "verify_iat": False, "verify_nbf": False},
        )
    except jwt.MissingRequiredClaimError as exc:
        raise Denied(f"the token has no {exc.claim!r} claim: ask for a new one") from None
    except jwt.InvalidAudienceError:
        raise Denied(f"the token is not for {AUDIENCE} (claim aud): ask for one with `rainbow token issue`") from None
    except jwt.InvalidIssuerError:
        raise Denied("the token was not issued by rainbow (claim iss)") from None
    except (jwt.PyJWTError, ValueError, TypeError):
        raise Denied("the token's signature is wrong: ask for a new one") from None
    return _principal(claims, moment)


def _principal(claims: Mapping[str, object], now: float) -> Principal:
    sub, jti, role, clusters = claims["sub"], claims["jti"], claims["role"], claims["clusters"]
    issued, expires = claims["iat"], claims["exp"]
    if not isinstance(sub, str) or not sub or not isinstance(jti, str) or not jti:
        raise Denied("the token's sub and jti must be text")
    if role not in ROLES:
        raise Denied(f"the token's role must be one of {', '.join(ROLES)}")
    if not isinstance(clusters, list) or not all(isinstance(c, str) for c in clusters):
        raise Denied("the token's clusters must be a list of names")
    issued, expires = _moment(issued), _moment(expires)
    bound = claims.get("body_sha256")
    if bound is not None and not isinstance(bound, str):
        raise Denied("the token's body_sha256 must be text")
    if expires + LEEWAY < now:
        raise Denied(f"the token ran out {now - expires:.0f} s ago: ask for a new one")
    if issued > now + LEEWAY:
        raise Denied(
            f"the token is from the future by {issued - now:.0f} s (at most {LEEWAY:.0f} s are allowed): set the clocks"
        )
    accounts = claims.get("account", [])
    accounts = [accounts] if isinstance(accounts, str) else accounts
    if not isinstance(accounts, list) or not all(isinstance(a, str) and _ACCOUNT.fullmatch(a) for a in accounts):
        raise Denied("the token's account must be the name of an account, or a list of them")
    if role == "submit" and not clusters:
        role = "enroll"  # what passes of releases before said: of no cluster, nothing can be asked
    return Principal(sub, cast(Role, role), frozenset(clusters), jti, issued, expires, bound, tuple(accounts))


def _moment(value: object) -> float:
    try:
        moment = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    except OverflowError:
        moment = math.inf
    if not math.isfinite(moment):
        raise Denied("the token's iat and exp must be times in seconds")
    return moment


def check_body(principal: Principal, body: bytes) -> None:
    """Raise Denied for a token that is bound to another message than the one with this `body`."""
    if principal.body_sha256 is None:
        return
    if not hmac.compare_digest(principal.body_sha256.encode(), sha256(body).hexdigest().encode()):
        raise Denied("the token is bound to another message (claim body_sha256): ask for one for this message")


def revoked(jti: str, sub: str, issued_at: float, revocations: Iterable[Revocation]) -> bool:
    """Is this token, or everything that its subject was issued until then, revoked?"""
    for entry in revocations:
        if entry.kind == "jti" and entry.value == jti:
            return True
        if entry.kind == "sub" and entry.value == sub and issued_at <= entry.before:
            return True
    return False


class Verifier:
    """Verifies tokens, remembering those it has seen: a signature is computed once, times and revocations always."""

    def __init__(self, ring: KeyRing, size: int = 20_000) -> None:
        self._ring = ring
        self._size = size
        self._seen: OrderedDict[str, Principal] = OrderedDict()
        self.revocations: Sequence[Revocation] = ()

    @property
    def ring(self) -> KeyRing:
        return self._ring

    @ring.setter
    def ring(self, ring: KeyRing) -> None:
        self._ring = ring
        self._seen.clear()

    def somebody(self, body: bytes, bearer: object = None) -> list[Principal]:
        """The principals of the tokens in an undecoded body and of a header `authorization`.

        For messages that cost much to decode: at most the first few tokens are verified.
        """
        given = [bearer] if isinstance(bearer, str) else []
        given += (found[0].decode() for found in islice(_IN_BODY.finditer(body), _LOOKED_AT))
        known: list[Principal] = []
        for token in given:
            with suppress(Denied):
                known.append(self.verify(token))
        return known

    def verify(self, token: str, *, now: float | None = None) -> Principal:
        """As `verify`, and refuses revoked tokens. `check_body` finds one that is bound to another message."""
        moment = time.time() if now is None else now
        principal = self._seen.get(token)
        if principal is None:
            principal = verify(self._ring, token, now=moment)
            self._seen[token] = principal
            if len(self._seen) > self._size:
                self._seen.popitem(last=False)
        elif principal.expires_at + LEEWAY < moment:
            raise Denied(f"the token ran out {moment - principal.expires_at:.0f} s ago: ask for a new one")
        if self.revocations and revoked(principal.jti, principal.sub, principal.issued_at, self.revocations):
            raise Denied("the token was revoked: ask for a new one")
        return principal
