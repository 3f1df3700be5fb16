"""Settings files that others can read: named when they hold a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from rainbow.exposure import exposed, warn_if_exposed

SECRET = "token: abc\n"


@pytest.mark.parametrize(
    ("text", "mode", "is_exposed"),
    [
        (SECRET, 0o644, True),
        (SECRET, 0o640, True),
        (SECRET, 0o600, False),
        ("broker: {url: 'amqp://u:p@host'}\n", 0o604, True),
        ("broker: {url: 'amqp://host/vhost'}\n", 0o644, False),
        ("clusters: [{name: red, token: abc}]\n", 0o644, True),
        ("cluster: {name: red, secret: abc}\n", 0o644, True),
        ("token_file: /run/token\n", 0o644, False),
        ("", 0o644, False),
    ],
)
def test_only_a_file_with_secrets_that_others_can_read(
    tmp_path: Path, text: str, mode: int, is_exposed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "rainbow-config.yaml"
    file.write_text(text)
    file.chmod(mode)
    assert exposed(file, {}) == (file if is_exposed else None)
    warn_if_exposed(file)
    assert [f"chmod 600 {file}" in line for line in caplog.messages] == [True] * is_exposed
