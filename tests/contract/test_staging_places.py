"""The contract of a place for files, for the two that rainbow brings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rainbow.errors import InvalidInput, NotFound, Unavailable
from rainbow.staging.base import Place
from rainbow.staging.folder import Folder
from rainbow.staging.rsync import Rsync
from ssh_server import ssh_server


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ssh_server(tmp_path_factory.mktemp("ssh")) as command:
        yield command


@pytest.fixture(params=["folder", "rsync"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    # A blank and a quote: no name is taken for more than a name.
    path = tmp_path / "it's a place"
    if request.param == "folder":
        return Folder({"path": str(path)})
    return Rsync({"host": "127.0.0.1", "path": str(path), "ssh": request.getfixturevalue("ssh")})


def test_files_and_folders_come_and_go(place: Place, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "$(odd) name").write_text("odd")
    (source / "one").write_bytes(os.urandom(100_000))
    (source / "link").symlink_to("/etc/hostname")
    os.mkfifo(source / "pipe")
    place.put(source, "job/out")
    place.put(source / "one", "job/out/more/again")
    place.put(source / "deep", "job/out/deep")
    place.get("job/out", tmp_path / "target")
    found = sorted(str(p.relative_to(tmp_path / "target")) for p in (tmp_path / "target").rglob("*") if p.is_file())
    assert found == ["deep/$(odd) name", "more/again", "one"]
    assert (tmp_path / "target" / "more" / "again").read_bytes() == (source / "one").read_bytes()
    place.remove("job/out/more")
    place.remove("job/nothing")
    place.get("job", tmp_path / "rest")
    assert not (tmp_path / "rest" / "out" / "more").exists()
    place.remove("job")
    with pytest.raises(NotFound):
        place.get("job/out", tmp_path / "none")


def test_names_are_neither_options_nor_hosts(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("-e", "--rsh=touch x", "host:file", "host::file"):
        Path(name).write_text(name)
        place.put(Path(name), f"job/in/{name}")
    place.get("job/in", tmp_path / "target")
    found = {path.name: path.read_text() for path in Path("target").iterdir()}
    assert len(found) == 4
    assert all(name == text for name, text in found.items())


@pytest.mark.parametrize("group", [False, True])
def test_what_is_there_is_for_its_owner_or_its_group(place: Place, tmp_path: Path, group: bool) -> None:
    root = tmp_path / "it's a place"
    root.mkdir()
    root.chmod(0o2770 if group else 0o755)
    (tmp_path / "one").write_text("1")
    (tmp_path / "one").chmod(0o644)
    place.put(tmp_path / "one", "job/in/d/one")
    folder = (root / "job" / "in" / "d").stat()
    file = (root / "job" / "in" / "d" / "one").stat()
    assert folder.st_mode & 0o7777 == (0o2770 if group else 0o700)
    assert file.st_mode & 0o060 == 0o060 if group else not (root / "job").stat().st_mode & 0o077
    assert not file.st_mode & 0o7002


def test_what_cannot_be_written_is_one_line(place: Place, tmp_path: Path) -> None:
    (tmp_path / "it's a place").write_text("a file")
    (tmp_path / "one").write_text("1")
    with pytest.raises(Unavailable) as caught:
        place.put(tmp_path / "one", "job/one")
    assert "\n" not in str(caught.value)


def test_a_host_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("1")
    place = Rsync({"host": "127.0.0.1", "path": "/x", "ssh": "ssh -p 1"})
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1: "):
        place.put(tmp_path / "one", "job/one")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"path": 1},
        {"path": "relative"},
        {"path": "/x", "more": 1},
    ],
)
def test_options_of_folder(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Folder(options)


@pytest.mark.parametrize(
    "options",
    [
        {"host": "h"},
        {"host": "-oProxyCommand=x", "path": "/x"},
        {"host": "h;id", "path": "/x"},
        {"host": "h", "path": "x"},
        {"host": "h", "path": "/x", "ssh": 1},
        {"host": "h", "path": "/x", "port": 1},
    ],
)
def test_options_of_rsync(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        Rsync(options)
