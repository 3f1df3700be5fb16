"""`stage_in` and `stage_out` of a submission: what travels in the jobspec, what is copied, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rainbow.client.staging import fetch, with_files
from rainbow.errors import InvalidInput, NotFound
from rainbow.models.staging import StagingSettings

ID = "6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11"


@pytest.fixture
def settings(tmp_path: Path) -> StagingSettings:
    place = {"name": "folder", "options": {"path": str(tmp_path / "place")}}
    return StagingSettings.model_validate({"places": {"shared": place}, "small": 10})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "here"
    (folder / "sub").mkdir(parents=True)
    (folder / "small").write_text("tiny")
    (folder / "bytes").write_bytes(b"\xff\x00")
    (folder / "large").write_text("x" * 11)
    (folder / "a:b").write_text("colon")
    monkeypatch.chdir(folder)
    return folder


def staged(settings: StagingSettings, **fields: Any) -> tuple[dict[str, Any], Any]:
    made, upload = with_files({"command": ["cat"], **fields}, settings)
    return dict(made), upload


def test_small_files_are_fluxs_own(here: Path, settings: StagingSettings) -> None:
    (here / "small").chmod(0o750)
    made, upload = staged(settings, stage_in=["small", Path("bytes"), "small:other", "a:b"], nodes=2, name="n")
    assert upload is None
    document = made["jobspec"]
    files = document["attributes"]["system"]["files"]
    assert files["small"] == {"mode": 0o100750, "encoding": "utf-8", "data": "tiny"}
    assert files["bytes"]["encoding"] == "base64"
    assert set(files) == {"small", "bytes", "other", "a:b"}
    assert document["tasks"][0]["command"] == ["env", "--chdir={{tmpdir}}", "cat"]
    assert set(made) == {"id", "jobspec", "name"}
    alone, _ = staged(settings, stage_in="small")
    assert set(alone["jobspec"]["attributes"]["system"]["files"]) == {"small"}


def test_a_script_stays_the_program_of_its_instance(here: Path, settings: StagingSettings) -> None:
    from rainbow.scripts import Overrides, read_script

    job = read_script("#!/bin/sh\n#flux: -n2\ncat small\n", "job.sh", [], Overrides())
    made, _ = with_files({"jobspec": job.jobspec, "stage_in": ["small"]}, settings)
    assert made["jobspec"]["tasks"][0]["command"][:4] == ["flux", "broker", "env", "--chdir={{tmpdir}}"]
    assert set(made["jobspec"]["attributes"]["system"]["files"]) == {"script", "small"}
    assert "small" not in job.jobspec["attributes"]["system"]["files"]
    with pytest.raises(InvalidInput, match="the job has a file script already"):
        with_files({"jobspec": job.jobspec, "stage_in": ["small:script"]}, settings)


def test_large_files_and_what_is_left_go_through_a_place(here: Path, settings: StagingSettings) -> None:
    made, upload = staged(settings, id=ID, stage_in=["large:data/big", "small"], stage_out=["out/", "./log"])
    plan = made["jobspec"]["attributes"]["user"]["rainbow"]["staging"]
    assert plan["place"] == "shared"
    assert plan["out"] == ["out", "log"]
    assert [file["path"] for file in plan["files"]] == ["data/big", "small"]
    assert "data" not in plan["files"][0]
    upload()
    place = here.parent / "place"
    assert (place / ID / "in" / "data" / "big").read_text() == "x" * 11
    (here / "large").write_text("changed, and longer")
    with pytest.raises(InvalidInput, match="large changed while it was copied: nothing is submitted"):
        upload()


def test_small_files_in_folders_need_no_place(here: Path) -> None:
    made, upload = staged(StagingSettings(), stage_in=["small:conf/small"])
    assert upload is None
    assert "place" not in made["jobspec"]["attributes"]["user"]["rainbow"]["staging"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"stage_in": ["nowhere"]}, "stage-in nowhere: no such file"),
        ({"stage_in": ["sub"]}, "stage-in sub: it is a folder: name its files"),
        ({"stage_in": ["small:../up"]}, "stage-in: '../up' is no path inside the working directory"),
        ({"stage_in": ["small:/etc/x"]}, "'/etc/x' is no path inside"),
        ({"stage_in": ["small:."]}, "'.' is no path inside"),
        ({"stage_in": ["small", "bytes:small"]}, "stage-in bytes:small: small is taken by small"),
        ({"stage_in": ["small:a", "bytes:a/b"]}, "a is taken by another file"),
        ({"stage_in": [3]}, "field 'stage_in': must be a list of names of files"),
        ({"stage_out": {"x": "y"}}, "field 'stage_out': must be a list"),
        ({"stage_out": ["/abs"]}, "stage-out: '/abs' is no path inside"),
        ({"stage_in": ["small"], "cwd": "/tmp"}, "has a working directory of its own"),
        (
            {"stage_in": ["small"], "requires": [{"name": "io", "field": "type", "match": "x"}]},
            "a command, a script or a V1 jobspec",
        ),
    ],
)
def test_what_cannot_be(here: Path, settings: StagingSettings, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        staged(settings, **fields)
    assert "\n" not in str(caught.value)


def test_a_place_must_be_known(here: Path, settings: StagingSettings) -> None:
    for wanted in ({"stage_in": ["large"]}, {"stage_out": ["x"]}):
        with pytest.raises(InvalidInput, match=r"set staging\.places"):
            staged(StagingSettings(small=10), **wanted)
        with pytest.raises(InvalidInput, match=r"staging\.place where there are several"):
            staged(
                settings.model_copy(update={"places": {**settings.places, "b": settings.places["shared"]}}), **wanted
            )


def test_fetching_brings_home_and_empties_the_place(here: Path, settings: StagingSettings) -> None:
    place = here.parent / "place"
    for path in (f"{ID}/in/x", f"{ID}/out/0/r/one", f"{ID}/out/1/two"):
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(path)
    (place / ID / "out" / "1" / "link").symlink_to("/etc/hostname")
    assert fetch(f"{ID}[0]", here / "got", settings, []) == ["r/one"]
    assert fetch(ID, here, settings, ["two"]) == ["1/two"]
    assert (here / "1" / "two").read_text() == f"{ID}/out/1/two"
    assert not list(place.iterdir())
    assert not [path for path in here.iterdir() if path.name.startswith(".rainbow")]
    with pytest.raises(NotFound, match=f"no {ID}/out"):
        fetch(ID, here, settings, [])


def test_a_cluster_does_not_choose_what_comes_home(here: Path, settings: StagingSettings) -> None:
    out = here.parent / "place" / ID / "out"

    def leave() -> None:
        for path in ("result", "r/deep/one", ".bashrc", "results", "0/.bashrc", "small"):
            (out / path).parent.mkdir(parents=True, exist_ok=True)
            (out / path).write_text("theirs")

    def jobspec(_: str) -> dict[str, Any]:
        return {"attributes": {"user": {"rainbow": {"staging": {"out": ["result", "r"]}}}}}

    def lost(_: str) -> dict[str, Any]:
        raise NotFound("the jobspec is not kept")

    leave()
    with pytest.raises(NotFound, match="fetch into an empty folder"):
        fetch(ID, here, settings, lost)
    assert fetch(ID, here, settings, jobspec) == ["r/deep/one", "result"]
    leave()
    assert fetch(ID, here, settings, ["result"]) == ["result"]
    assert (here / "small").read_text() == "tiny"
    assert not (here / ".bashrc").exists()
    leave()
    assert ".bashrc" in fetch(ID, here / "empty", settings, lost)


@pytest.mark.parametrize("user", [None, "x", [], {"rainbow": "x"}, {"rainbow": {"staging": None}}])
def test_a_job_that_was_to_leave_nothing_brings_nothing(here: Path, settings: StagingSettings, user: Any) -> None:
    out = here.parent / "place" / ID / "out"
    out.mkdir(parents=True)
    (out / ".bashrc").write_text("theirs")
    assert fetch(ID, here, settings, lambda _: {"attributes": {"user": user}}) == []
    assert not (here / ".bashrc").exists()


@pytest.mark.parametrize("name", ["", "..", "../..", "x", "/etc"])
def test_only_jobs_are_fetched(here: Path, settings: StagingSettings, name: str) -> None:
    (here.parent / "place").mkdir()
    with pytest.raises(InvalidInput, match="must be a UUID"):
        fetch(name, here, settings, [])
    assert (here.parent / "place").exists()
