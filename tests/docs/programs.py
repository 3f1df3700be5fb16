"""Programs that documents use and that may not be here: skipped visibly, failed where tests must not be skipped."""

from __future__ import annotations

import os
import shutil

import pytest


def needs(program: str, package: str) -> None:
    """Skip without `program`; fail with RAINBOW_TEST_REQUIRE=1, as in CI."""
    if shutil.which(program) is not None:
        return
    text = f"{program} is not installed (Debian: {package})"
    if os.environ.get("RAINBOW_TEST_REQUIRE") == "1":
        pytest.fail(f"RAINBOW_TEST_REQUIRE is set, and {text}")
    pytest.skip(text)
