"""Signatures are HMAC-SHA256 as the standard library makes it."""

from __future__ import annotations

import hmac

import pytest

from rainbow.security import signing


@pytest.mark.parametrize("length", [0, 1, 32, 63, 64, 65, 200])
@pytest.mark.parametrize("data", [b"", b"x", b"dispatch" * 1000])
def test_keys_of_every_length(length: int, data: bytes) -> None:
    key = bytes(range(length))
    assert signing.sign({"k1": key}, data) == f"k1:{hmac.new(key, data, 'sha256').hexdigest()}"
