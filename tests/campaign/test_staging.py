"""Files that travel with jobs: from the command line, from Python and with the functions of an Executor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.executor import Executor, FunctionFailed
from rig import eventually

LIMIT = 60.0


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "numbers").write_text("1\n2\n3\n")
    (tmp_path / "large").write_bytes(b"x" * 100_000)
    return tmp_path


def rainbow(
    site: Site, folder: Path, *args: str, code: int = 0, text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "rainbow.cli", *args],
        cwd=folder,
        env={**site.environment(), "RAINBOW_CONFIG": str(site.settings_of("alice")), **environment},
        input=text,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


def shared(site: Site) -> Path:
    return site.folder / "shared"


def test_small_files_travel_in_the_message(site: Site, here: Path) -> None:
    done = rainbow(site, here, "submit", "--wait", "--stage-in", "numbers:n", "sh", "-c", "cat n; pwd")
    *numbers, folder = done.stdout.split()
    assert numbers == ["1", "2", "3"]
    assert folder != str(here)
    script = "#!/bin/sh\n#flux: -n1\ncat numbers\n"
    done = rainbow(site, here, "batch", "--wait", "--stage-in", "numbers", text=script)
    assert done.stdout == "1\n2\n3\n"


def test_large_files_go_and_results_come_home(site: Site, here: Path) -> None:
    command = ["sh", "-c", "wc -c < in/large > sums/size; cp -r sums again"]
    staged = [
        "--stage-in",
        "large:in/large",
        "--stage-in",
        "numbers:sums/n",
        "--stage-out",
        "sums",
        "--stage-out",
        "again/n",
    ]
    done = rainbow(site, here, "submit", "--wait", *staged, *command)
    assert "fetched again/n sums/n sums/size" in done.stderr
    assert (here / "sums" / "size").read_text().strip() == "100000"
    assert not list(shared(site).iterdir())
    name = rainbow(site, here, "submit", "-a", "0-1", "--stage-out", "x", "sh", "-c", "echo {{array.index}} > x").stdout
    rainbow(site, here, "wait", name.strip())
    assert rainbow(site, here, "fetch", name.strip(), "all").stdout == "0/x\n1/x\n"
    assert (here / "all" / "1" / "x").read_text() == "1\n"
    assert "no " in rainbow(site, here, "fetch", "@-", code=5).stderr


def test_wrong_input_submits_nothing(site: Site, here: Path, client: Client) -> None:
    before = [job.id for job in client.jobs(limit=3)]
    (here / "up").symlink_to(here.parent)
    for options, words in (
        (["--stage-in", "nowhere"], "stage-in nowhere: no such file"),
        (["--stage-in", "up"], "stage-in up: it is a folder"),
        (["--stage-in", "numbers:../x"], "'../x' is no path inside the working directory"),
        (["--stage-in", "numbers:/x"], "'/x' is no path inside the working directory"),
        (["--stage-out", "../x"], "stage-out: '../x' is no path inside the working directory"),
        (["--cwd", "/tmp", "--stage-in", "numbers"], "leave out the other one"),
    ):
        done = rainbow(site, here, "submit", *options, "true", code=2)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    done = rainbow(site, here, "submit", "--stage-in", "large", "true", code=2, RAINBOW_STAGING_PLACES="{}")
    assert "set staging.places" in done.stderr
    assert [job.id for job in client.jobs(limit=3)] == before


def test_a_job_that_leaves_less_fails_in_one_line(site: Site, here: Path) -> None:
    done = rainbow(site, here, "submit", "--wait", "--stage-out", "result", "true", code=1)
    assert "stage-out: the job left no result" in done.stderr
    done = rainbow(site, here, "submit", "--wait", "--stage-out", "passwd", "ln", "-s", "/etc/passwd", "passwd", code=1)
    assert "stage-out: passwd leads out of the working directory" in done.stderr
    assert not (here / "passwd").exists()


def test_a_file_that_changed_at_its_place_is_not_given_to_the_job(site: Site, here: Path, client: Client) -> None:
    # Held back until the file was changed.
    first = client.submit(command=["sleep", "30"])
    job = client.submit(
        command=["cat", "large"], stage_in=[here / "large"], dependency=f"afterany:{first.id}", name="held back"
    )
    (shared(site) / job.id / "in" / "large").write_text("something else")
    first.cancel()
    record = job.wait(LIMIT)
    assert (record.state, record.code) == ("failed", "staging")
    assert record.detail == "stage-in: large does not match its checksum: it changed after it was submitted"


def test_python(client: Client, here: Path) -> None:
    job = client.submit(
        command=["sh", "-c", "sort -r numbers > sorted"], stage_in=[here / "numbers"], stage_out=["sorted"]
    )
    job.result(LIMIT)
    assert job.fetch(here / "got") == ["sorted"]
    assert (here / "got" / "sorted").read_text() == "3\n2\n1\n"


def test_functions_with_large_arguments_and_results(client: Client, site: Site) -> None:
    def fails(_: bytes) -> None:
        raise ValueError("on purpose")

    with Executor(client, python=sys.executable, staging=True) as pool:
        large = os.urandom(3_000_000)  # more than a message may have, and not to be compressed
        there, small, bad = pool.submit(bytes, large), pool.submit(len, large), pool.submit(fails, large)
        assert there.result(LIMIT) == large
        assert small.result(LIMIT) == len(large)
        with pytest.raises(ValueError, match="on purpose"):
            bad.result(LIMIT)
    eventually(lambda: not list(shared(site).iterdir()), LIMIT)
    with Executor(client, python=sys.executable) as pool:
        with pytest.raises(FunctionFailed, match=r"use Executor\(staging=True\)"):
            pool.submit(os.urandom, 100_000).result(LIMIT)
