"""`rainbow-sbatch`, `rainbow-squeue`, `rainbow-scancel`, called and parsed as Nextflow and Cromwell do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Site
from rainbow.cli.slurm import number_of, uuid_of
from rainbow.client import Client
from rainbow.errors import InvalidInput
from rig import eventually

#: As in Nextflow's SlurmExecutor and in Cromwell's reference configuration.
NEXTFLOW_ID = re.compile(r"Submitted batch job (\d+)")
CROMWELL_ID = re.compile(r"Submitted batch job (\d+).*")

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def call(site: Site, tmp_path: Path) -> Call:
    environment = {**site.environment(), "RAINBOW_CONFIG": str(site.settings_of("alice")), "HOME": str(tmp_path)}

    def run(program: str, *arguments: str, code: int = 0, text: str = "") -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-c", f"from rainbow.cli.slurm import {program}; {program}()", *arguments],
            cwd=tmp_path,
            env={**environment, "PATH": os.environ["PATH"]},
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return run


def state(call: Call, number: str) -> str | None:
    """A job's state as Nextflow reads the whole list."""
    lines = call("squeue", "--noheader", "-o", "%i %t", "-t", "all", "-u", "alice").stdout.splitlines()
    return dict(line.split() for line in lines).get(number)


def test_as_nextflow_does(call: Call, client: Client, tmp_path: Path) -> None:
    (tmp_path / ".command.run").write_text(
        "#!/bin/bash\n#SBATCH -J nf-task_1\n#SBATCH -o " + str(tmp_path / ".command.log") + "\n#SBATCH --no-requeue\n"
        "#SBATCH --signal B:USR2@30\n#SBATCH -c 1\n#SBATCH -t 00:05:00\n#SBATCH --mem 1024M\n"
        "echo from $(pwd) with $SLURM_CPUS_PER_TASK; touch done\n"
    )
    refused = call("sbatch", ".command.run", code=2)
    assert refused.stdout == ""
    assert "--mem=1024M: Flux allocates" in refused.stderr
    done = call("sbatch", "--ignore-unsupported", ".command.run")
    found = NEXTFLOW_ID.fullmatch(done.stdout.strip())
    assert found is not None
    eventually(lambda: state(call, found[1]) == "CD", 40, every=0.5)
    record = client.status([uuid_of(found[1])])[0]
    assert record is not None
    assert record.name == "nf-task_1"
    assert (tmp_path / "done").exists()
    assert (tmp_path / ".command.log").read_text() == f"from {tmp_path} with 1\n"


def test_as_cromwell_does(call: Call, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo cromwell; sleep 30\n")
    options = ["-J", "cromwell_1", "-D", str(tmp_path), "-o", "out", "-e", "err", "-t", "5", "-c", "1"]
    done = call("sbatch", *options, "--wrap", f"/bin/bash {tmp_path}/script")
    found = CROMWELL_ID.fullmatch(done.stdout.strip())
    assert found is not None
    alive = call("squeue", "-j", found[1])
    assert found[1] in alive.stdout
    assert alive.stdout.splitlines()[0].split()[:2] == ["JOBID", "PARTITION"]
    eventually(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text() == "cromwell\n", 40, every=0.2)
    assert state(call, found[1]) == "R"
    call("scancel", found[1])
    eventually(lambda: state(call, found[1]) == "CA", 40, every=0.5)
    assert found[1] not in call("squeue", "-j", found[1], "-h").stdout


def test_an_array(call: Call, tmp_path: Path) -> None:
    script = "#!/bin/sh\n#SBATCH -a 0-3:3\n#SBATCH -o out-%a\necho $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_MAX\n"
    number = call("sbatch", "--parsable", "-n", "1", text=script).stdout.strip()
    whole = f"{number}_[0-3:3]"
    eventually(lambda: state(call, whole) == "CD", 40, every=0.5)
    assert (tmp_path / "out-3").read_text() == "3 of 3\n"
    shown = call("squeue", "-h", "-t", "all", "-o", "%i %t", "-j", f"{number},{number}_3").stdout.splitlines()
    assert shown == [f"{whole} CD", f"{number}_3 CD"]


def test_what_a_script_cannot_have_and_what_is_not_there(call: Call, tmp_path: Path) -> None:
    (tmp_path / "ok.sh").write_text("#!/bin/sh\n#SBATCH --ignore-unsupported --mem=1G\ntrue\n")
    parsable = call("sbatch", "--parsable", "-n", "1", "ok.sh", "--not-ours").stdout.strip()
    assert number_of(uuid_of(parsable)) == parsable
    assert call("sbatch", text="#!/bin/sh\ntrue\n").stdout.startswith("Submitted batch job ")
    for program, arguments, words in (
        ("sbatch", ["nowhere.sh"], "Unable to open file nowhere.sh: No such file"),
        ("sbatch", ["--nodes=two", "ok.sh"], "nodes=two"),
        ("sbatch", ["-n"], "expected one argument"),
        ("squeue", ["-j", "x"], "Invalid job id x"),
        ("squeue", ["-o", "%Z"], "%Z is not known"),
        ("scancel", [], "required: jobs"),
    ):
        done = call(program, *arguments, code=2)
        assert words in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1
    assert "Invalid job id specified" in call("scancel", "7", code=5).stderr
    assert "Invalid job id specified" in call("squeue", "-j", "7", code=5).stderr


def test_numbers_and_ids() -> None:
    assert number_of("6f1c1f7e-3f0e-4c56-9a53-2f1f0f6c8a11") is None
    for number in ("0", "1", str((1 << 60) - 1)):
        assert number_of(uuid_of(number)) == number
    with pytest.raises(InvalidInput):
        uuid_of(str(1 << 60))
