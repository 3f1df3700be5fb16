"""Tokens and the key ring: what is let in, what is refused, and that the refusal says why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest

from rainbow import settings
from rainbow.client.credentials import Credentials
from rainbow.errors import Denied, InvalidInput, InvalidSettings
from rainbow.models.cluster import Revocation
from rainbow.security import tokens
from rainbow.security.tokens import KeyRing, Verifier, issue, verify

RING = KeyRing.generate()
NOW = 1_800_000_000.0


def made(**claims: Any) -> str:
    """A token with the claims of a good one but for `claims`; None takes one out."""
    kid, key = RING.signing
    good: dict[str, Any] = {
        "iss": "rainbow",
        "aud": "rainbow",
        "sub": "alice",
        "jti": "0123",
        "iat": NOW,
        "exp": NOW + 600,
        "role": "submit",
        "clusters": ["blue"],
    }
    kept = {name: value for name, value in {**good, **claims}.items() if value is not None}
    return jwt.encode(kept, key, algorithm="HS256", headers={"kid": kid})


def denied(token: str, *, now: float = NOW, ring: KeyRing = RING) -> str:
    with pytest.raises(Denied) as caught:
        tokens.verify(ring, token, now=now)
    assert len(token) < 8 or token not in str(caught.value)
    return str(caught.value)


def test_a_good_token_says_who_and_where() -> None:
    token = tokens.issue(RING, sub="alice", role="submit", clusters=["red", "@gpu", "red"], ttl=60, now=NOW)
    who = tokens.verify(RING, token, now=NOW)
    assert (who.sub, who.role, who.clusters) == ("alice", "submit", frozenset({"red", "@gpu"}))
    assert (who.issued_at, who.expires_at) == (NOW, NOW + 60)
    assert tokens.verify(RING, made(), now=NOW).sub == "alice"


def test_groups_are_looked_up_when_asked() -> None:
    who = tokens.verify(RING, tokens.issue(RING, sub="a", role="submit", clusters=["@gpu"], ttl=60))
    assert not who.covers("blue", {})
    assert who.covers("blue", {"@gpu": frozenset({"blue"})})


@pytest.mark.parametrize("claim", ["iss", "aud", "sub", "jti", "iat", "exp", "role", "clusters"])
def test_each_claim_is_required(claim: str) -> None:
    assert claim in denied(made(**{claim: None}))


@pytest.mark.parametrize(
    ("claims", "word"),
    [
        ({"aud": "other"}, "aud"),
        ({"aud": ["other", "another"]}, "aud"),
        ({"iss": "other"}, "iss"),
        ({"role": "root"}, "role"),
        ({"role": ["admin"]}, "role"),
        ({"sub": ""}, "sub"),
        ({"sub": 7}, "wrong"),
        ({"jti": 7}, "wrong"),
        ({"clusters": "blue"}, "clusters"),
        ({"clusters": [1]}, "clusters"),
        ({"exp": "soon"}, "exp"),
        ({"iat": True}, "iat"),
        ({"exp": 10**400}, "exp"),
        ({"body_sha256": 1}, "body_sha256"),
    ],
    ids=str,
)
def test_claims_that_make_no_sense(claims: dict[str, Any], word: str) -> None:
    assert word in denied(made(**claims))


def test_the_algorithm_is_ours_whatever_the_token_says() -> None:
    kid, key = RING.signing
    claims = jwt.decode(made(), options={"verify_signature": False})
    forged: tuple[tuple[str, str | bytes], ...] = (("none", ""), ("HS512", key + key), ("HS384", key + key))
    for algorithm, secret in forged:
        token = jwt.encode(claims, secret, algorithm=algorithm, headers={"kid": kid})
        assert "signature" in denied(token)


@pytest.mark.parametrize(
    "bad", ["", "x", "a.b.c", "é" * 10, "." * 20, "eyJhbGciOiJIUzI1NiJ9.e30.", "\x00", "a" * 20000]
)
def test_what_is_no_token(bad: str) -> None:
    denied(bad)


def test_a_changed_token_is_refused() -> None:
    token = made()
    head, body, signature = token.split(".")
    other = made(sub="mallory").split(".")[1]
    denied(f"{head}.{other}.{signature}")
    denied(f"{head}.{body}.{signature[:-4]}AAAA")
    denied(f"{head}.{body}.")


@pytest.mark.parametrize("skew", [0, 2, -2, 59, -59])
def test_small_skew_is_let_pass(skew: float) -> None:
    assert tokens.verify(RING, made(iat=NOW + skew), now=NOW).sub == "alice"


def test_large_skew_is_named() -> None:
    """S55: the refusal says by how much the clocks differ, and how much is let pass."""
    text = denied(made(iat=NOW + 600, exp=NOW + 6000))
    assert "600 s" in text
    assert "60 s" in text
    assert "clocks" in text


def test_expiry_is_enforced_and_measured() -> None:
    assert tokens.verify(RING, made(), now=NOW + 659)
    assert "ran out 661 s ago" in denied(made(exp=NOW), now=NOW + 661)
    verifier = Verifier(RING)
    token = made()
    assert verifier.verify(token, now=NOW)
    with pytest.raises(Denied, match="ran out 700 s ago"):
        verifier.verify(token, now=NOW + 1300)


@pytest.mark.parametrize("bad", [{"role": "root"}, {"sub": ""}, {"sub": "x" * 256}, {"ttl": 0}, {"ttl": -5}])
def test_nonsense_is_not_issued(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        tokens.issue(RING, **{"sub": "a", "role": "submit", "ttl": 60, **bad})


def test_a_token_for_one_message() -> None:
    body = b'{"command": ["hostname"]}'
    who = tokens.verify(RING, tokens.issue(RING, sub="a", role="submit", ttl=60, body=body))
    tokens.check_body(who, body)
    with pytest.raises(Denied, match="body_sha256"):
        tokens.check_body(who, body + b" ")
    tokens.check_body(tokens.verify(RING, made(), now=NOW), b"anything")


# -- revocation ---------------------------------------------------------------------------------------------


def revoke(verifier: Verifier, *entries: Revocation) -> None:
    verifier.revocations = entries


def refused(verifier: Verifier, token: str) -> bool:
    try:
        verifier.verify(token)
    except Denied as exc:
        return "revoked" in str(exc)
    return False


def test_revoked_by_token() -> None:
    verifier = Verifier(RING)
    one, other = (tokens.issue(RING, sub="a", role="submit", ttl=60) for _ in range(2))
    assert not refused(verifier, one)
    jti = tokens.verify(RING, one).jti
    revoke(verifier, Revocation(kind="jti", value=jti, before=0, until=time.time() + 60))
    assert refused(verifier, one)
    assert not refused(verifier, other)


def test_revoked_by_subject_until_a_new_one_is_issued_and_revoked_again() -> None:
    verifier = Verifier(RING)
    now = time.time()
    old = tokens.issue(RING, sub="a", role="submit", ttl=600, now=now - 100)
    new = tokens.issue(RING, sub="a", role="submit", ttl=600, now=now - 10)
    revoke(verifier, Revocation(kind="sub", value="a", before=now - 50, until=now + 60))
    assert refused(verifier, old)
    assert not refused(verifier, new)
    revoke(verifier, Revocation(kind="sub", value="a", before=now, until=now + 60))
    assert refused(verifier, new)
    revoke(verifier)
    assert not refused(verifier, new)


# -- the key ring -------------------------------------------------------------------------------------------


def test_rotation_keeps_old_tokens_good_until_their_key_is_dropped() -> None:
    token = tokens.issue(RING, sub="a", role="submit", ttl=60)
    verifier = Verifier(RING)
    verifier.verify(token)
    verifier.ring = once = RING.rotated(keep=1)
    assert once.signing != RING.signing
    verifier.verify(token)
    verifier.verify(tokens.issue(once, sub="a", role="submit", ttl=60))
    verifier.ring = once.rotated(keep=1)
    with pytest.raises(Denied, match="key this rainbow does not know"):
        verifier.verify(token)


def test_a_prepared_key_verifies_before_it_signs(tmp_path: Path) -> None:
    ready = RING.prepared()
    assert ready.prepared() is ready
    assert ready.signing == RING.signing
    assert ready.next not in (None, RING.signing[0])
    ready.save(tmp_path / "keys.json")
    assert KeyRing.load(tmp_path / "keys.json") == ready
    after = ready.rotated(keep=1)
    assert after.signing[0] == ready.next
    assert [kid for kid, _ in after.keys] == [ready.next, RING.signing[0]]
    token = tokens.issue(after, sub="a", role="submit", ttl=60)
    assert tokens.verify(ready, token).sub == "a"
    with pytest.raises(InvalidSettings, match="next"):
        KeyRing(RING.keys, next="unknown")


def test_saved_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "keys.json"
    RING.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert KeyRing.load(path) == RING
    assert RING.signing[1].hex() not in repr(RING)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_refused_when_others_can_read_it(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys.json"
    RING.save(path)
    path.chmod(mode)
    with pytest.raises(InvalidSettings, match="chmod 600"):
        KeyRing.load(path)


def write(text: str) -> Callable[[Path], None]:
    def writing(path: Path) -> None:
        path.write_text(text)
        path.chmod(0o600)

    return writing


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: None,
        write(""),
        write("[]"),
        write('{"keys": []}'),
        write('{"keys": [{"kid": "a"}]}'),
        write(json.dumps({"keys": [{"kid": "a", "key": "zz"}]})),
        write(json.dumps({"keys": [{"kid": "a", "key": "00" * 31}]})),
        write(json.dumps({"keys": [{"kid": 'a">>', "key": "00" * 32}]})),
    ],
)
def test_a_ring_that_cannot_be_used(tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    path = tmp_path / "keys.json"
    spoil(path)
    with pytest.raises(InvalidSettings) as caught:
        KeyRing.load(path)
    assert "00" * 31 not in str(caught.value)


_ODD = ["{}\n", "{}\r\n", "  {}\t", "Bearer {}", "bearer  {}\n", "'{}'", '"Bearer {}"', "\ufeff{}"]


@pytest.mark.parametrize("form", _ODD)
def test_what_stands_around_a_token_is_no_part_of_it(form: str, tmp_path: Path) -> None:
    """One rule for settings, environment, files, options, messages and headers."""
    token = issue(RING, sub="ann", role="submit", ttl=60)
    odd = form.format(token)
    assert verify(RING, odd).sub == Verifier(RING).verify(odd).sub == "ann"
    assert [p.sub for p in Verifier(RING).somebody(b"{}", odd)] == ["ann"]
    file = tmp_path / "token"
    file.write_text(odd)
    for environ in ({"RAINBOW_TOKEN": odd}, {"RAINBOW_TOKEN": f"@{file}"}, {"RAINBOW_TOKEN_FILE": str(file)}):
        loaded = settings.load(None, {**environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
        assert Credentials.from_settings(loaded).for_submission() == [token]
    for given in (odd, f"@{file}"):
        assert Credentials.from_settings(settings.Settings(), given).for_submission() == [token]
    listed = settings.Settings.model_validate({"clusters": [{"name": "blue", "token": odd}]})
    assert Credentials.from_settings(listed).for_submission() == [token]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("", "it is empty"),
        ("a b", "white space"),
        ("a.b", "2 parts"),
        ("@file", "names a file"),
        ("a.b.c", "first part"),
    ],
)
def test_it_is_said_what_is_odd_about_a_token(bad: str, words: str) -> None:
    assert words in denied(bad)


def test_a_token_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    for name, words in (("empty", "is empty"), ("none", "cannot be read: No such file")):
        with pytest.raises(InvalidSettings, match=words):
            Credentials.from_settings(settings.Settings(), f"@{tmp_path / name}")
