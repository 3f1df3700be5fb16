"""Fixtures of the integration tests."""

from __future__ import annotations

from typing import Any

import pytest

from running import Shell


@pytest.fixture
def sh(capsys: Any) -> Shell:
    """Runs commands in this process."""
    return Shell(capsys)
