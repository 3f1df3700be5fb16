"""Folders and names of the user, also for one that the system does not know."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rainbow import paths
from rainbow.errors import InvalidSettings


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No passwd entry, and nothing in the environment."""

    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody")
def test_a_user_without_a_name_has_a_home_and_a_name() -> None:
    assert paths.home() == Path("/")
    assert paths.expand("~/x") == Path("/x")
    assert paths.user_name() == f"uid-{os.getuid()}"
    assert paths.expand("~nosuchuser/x") == Path("~nosuchuser/x")


def test_folders_are_those_of_the_xdg_specification() -> None:
    environ = {"HOME": "/home/me", "XDG_DATA_HOME": "/data", "XDG_STATE_HOME": "relative"}
    assert paths.config_home(environ) == Path("/home/me/.config")
    assert paths.data_home(environ) == Path("/data")
    assert paths.state_home(environ) == Path("/home/me/.local/state")  # a relative path is to be ignored


def test_a_private_folder_is_ones_own_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        paths.private_folder(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [oct((tmp_path / name).stat().st_mode & 0o777) for name in ("a", "a/b")] == ["0o700", "0o700"]
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o770)
    with pytest.raises(InvalidSettings, match="chmod go-w"):
        paths.private_folder(tmp_path / "open")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_socket_in_a_folder_of_another_user_is_not_connected_to(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "theirs").mkdir()
    os.chown(shared / "theirs", 12345, 12345)
    (shared / "ours").mkdir()
    for scheme in ("unix", "kombu+redis+socket"):
        with pytest.raises(InvalidSettings, match="another user"):
            paths.check_socket(f"{scheme}://{shared}/theirs/server.sock?db=1")
        paths.check_socket(f"{scheme}://{shared}/ours/server.sock?db=1")
        paths.check_socket(f"{scheme}://{shared}/none/server.sock")
    paths.check_socket("amqp://host/vhost")
    shared.chmod(0o755)  # as /run: who may make a folder there is trusted
    paths.check_socket(f"unix://{shared}/theirs/server.sock")
