"""Batch scripts: directives of four dialects, the command line over them, and the jobspec that comes out."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidInput
from rainbow.jobspec import read
from rainbow.jobspec.flux.v1 import V1Translator
from rainbow.scripts import BatchJob, Overrides, read_script
from rainbow.scripts import flux as flux_options
from rainbow.scripts.constraint import read_text
from running import Shell, alone


def script(*lines: str, **overrides: Any) -> BatchJob:
    text = "\n".join(["#!/bin/bash", *lines, "hostname", ""])
    return read_script(text, "job.sh", (), Overrides(**overrides), {"HOME": "/home/me", "PATH": "/bin", "SECRET": "s"})


def size(job: BatchJob) -> tuple[int | None, int, int, int, bool]:
    """Nodes, slots, cores and GPUs of a slot, whole nodes."""
    top = job.jobspec["resources"][0]
    nodes, whole = None, False
    if top["type"] == "node":
        nodes, whole, top = top["count"], top.get("exclusive", False), top["with"][0]
    count = job.jobspec["tasks"][0]["count"]
    slots = count.get("total") or top["count"] * (nodes or 1)
    inside = {one["type"]: one["count"] for one in top["with"]}
    return nodes, slots, inside["core"], inside.get("gpu", 0), whole


def system(job: BatchJob) -> dict[str, Any]:
    found: dict[str, Any] = job.jobspec["attributes"]["system"]
    return found


# -- Slurm -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("-N 2", (2, 2, 1, 0, True)),
        ("-n 3", (None, 3, 1, 0, False)),
        ("--nodes=2-2 --ntasks-per-node=4 -c 8", (2, 8, 8, 0, False)),
        ("--nodes 2 --ntasks 4 --exclusive", (2, 4, 1, 0, True)),
        ("-N1 --gres=gpu:2 -c 7", (1, 1, 7, 2, False)),
        ("-N 2 --tasks-per-node=2 --gpus-per-node=4 -c 3", (2, 2, 6, 4, False)),
        ("-N 2 --gpus=8", (2, 2, 1, 4, False)),
        ("--gpus=3", (None, 3, 1, 1, False)),
        ("-n 4 --gpus-per-task=1", (None, 4, 1, 1, False)),
        ("-n 5 --ntasks-per-node=2", (3, 5, 1, 0, False)),
    ],
)
def test_sizes_of_slurm(directive: str, expected: tuple[Any, ...]) -> None:
    job = script(f"#SBATCH {directive}")
    assert (size(job), job.refused) == (expected, ())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 1800), ("10:30", 630), ("1:00:00", 3600), ("2-0", 172800), ("1-2:30", 95400), ("1-00:00:01", 86401)],
)
def test_times_of_slurm(text: str, seconds: int) -> None:
    assert system(script(f"#SBATCH --time={text}"))["duration"] == seconds


def test_what_slurm_says_beside_resources() -> None:
    job = script(
        "#SBATCH -J name -p batch --account=acct  # a comment",
        "#SBATCH --output=%x-%j.out -e logs/%J.err --chdir /data",
        "#SBATCH --constraint=gpu,ssd --exclude=node[1-2]",
        "#SBATCH --export=A=1,HOME --signal=B:TERM@90 --no-requeue",
        "#SBATCH -M red,blue --begin=2031-05-01T12:00:00",
        "##SBATCH --disabled",
    )
    got = system(job)
    assert job.refused == ()
    assert (job.name, got["job"]["name"], job.clusters) == ("name", "name", ("red", "blue"))
    assert (got["queue"], got["bank"], got["cwd"]) == ("batch", "acct", "/data")
    assert got["shell"]["options"]["output"]["stdout"] == {"type": "file", "path": "{{name}}-{{id}}.out"}
    assert got["shell"]["options"]["output"]["stderr"]["path"] == "logs/{{id}}.err"
    assert got["constraints"] == {"and": [{"properties": ["gpu", "ssd"]}, {"not": [{"hostlist": ["node[1-2]"]}]}]}
    assert got["environment"]["A"] == "1"
    assert got["environment"]["HOME"] == "/home/me"
    assert "SECRET" not in got["environment"]
    assert got["shell"]["options"]["signal"] == {"signum": 15, "timeleft": 90.0}
    begins = str(datetime.fromisoformat("2031-05-01T12:00:00").timestamp())
    assert got["dependencies"] == [{"scheme": "begin-time", "value": begins}]


@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ("--mem=8G", "not memory"),
        ("-d afterok:12", "job ids"),
        ("--mail-type=END", "no mail"),
        ("--qos=debug", "site"),
        ("--export=ALL", "name the variables"),
        ("--gres=gpu:a100:2", "a type of GPU"),
        ("--gres=lustre:1", "only gpu"),
        ("-o %u.out", "%u"),
        ("--nodes=2-4", "range"),
        ("-C [a|b]", "features"),
        ("--exclusive=user", "whole nodes"),
        ("--no-such-thing", "not an option"),
        ("hetjob", "several parts"),
    ],
)
def test_what_slurm_has_and_rainbow_has_not_is_named(directive: str, words: str) -> None:
    (line,) = script("#SBATCH -n 1", f"#SBATCH {directive}").refused
    assert line.startswith("line 3: ")
    assert words in line


@pytest.mark.parametrize(
    ("lines", "array"),
    [
        (["#SBATCH -n 1", "#SBATCH -a 0-9:3%2"], "0-9:3%2"),
        (["#PBS -l nodes=1", "#PBS -J 0-9:3%2"], "0-9:3%2"),
        (["#PBS -l nodes=1", "#PBS -t 1,5"], "1,5"),
        (["#BSUB -n 1", "#BSUB -J 'sweep[1-10]%2'"], "1-10%2"),
    ],
)
def test_arrays_of_other_schedulers(lines: list[str], array: str) -> None:
    job = script(*lines)
    assert (job.array, job.refused) == (array, ())
    assert script(*lines, array="1-2").array == "1-2"


def test_names_of_files_of_arrays() -> None:
    def path(*lines: str) -> str:
        return str(system(script("#SBATCH -n 1", *lines))["shell"]["options"]["output"]["stdout"]["path"])

    assert path("#SBATCH -a 1-2", "#SBATCH -o %A_%a-%j.out") == "{{array.id}}_{{array.index}}-{{id}}.out"
    assert path("#SBATCH -o %A-%j.out") == "{{id}}-{{id}}.out"
    with pytest.raises(InvalidInput, match="needs the index of an array"):
        path("#SBATCH -o %a.out")


def test_directives_after_the_first_command_are_named() -> None:
    assert "line 3: after the first command" in script("module load x", "#SBATCH -n 2").refused[0]


# -- PBS, LSF --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#PBS -l select=2:ncpus=8:mpiprocs=4:ngpus=2,walltime=01:00:00", (2, 2, 8, 2, False)),
        ("#PBS -l nodes=2:ppn=4", (2, 8, 1, 0, False)),
        ("#PBS -l select=1:ncpus=4 -l place=excl", (1, 1, 4, 0, True)),
        ("#BSUB -nnodes 4 -W 1:30", (4, 4, 1, 0, True)),
        ("#BSUB -n 6 -R span[hosts=1]", (1, 6, 1, 0, False)),
        ("#BSUB -gpu num=2:j_exclusive=yes", (1, 1, 1, 2, False)),
    ],
)
def test_sizes_of_pbs_and_lsf(line: str, expected: tuple[Any, ...]) -> None:
    job = script(line)
    assert (size(job), job.refused) == (expected, ())


def test_what_pbs_and_lsf_say_beside_resources() -> None:
    job = script("#PBS -N x -q batch -A acct -l walltime=90 -o host:/tmp/out -j oe -v A=1,B=2")
    got = system(job)
    assert (job.name, got["queue"], got["bank"], got["duration"]) == ("x", "batch", "acct", 90)
    assert got["shell"]["options"]["output"]["stdout"]["path"] == "/tmp/out"
    assert got["environment"] | {"A": "1", "B": "2"} == got["environment"]
    lsf = script("#BSUB -J x -W 30 -oo o.%J -P acct", "#BSUB -M 4GB")
    assert system(lsf)["duration"] == 1800
    assert "not memory" in lsf.refused[0]
    refused = script("#PBS -l mem=4gb -m abe", "#PBS -V -W depend=afterok:1").refused
    assert len(refused) == 4


def test_dependencies_on_jobs_of_rainbow_are_kept_and_others_refused() -> None:
    one, two = "6f9619ff-8b86-d011-b42d-00cf4fc964ff", "7f9619ff-8b86-d011-b42d-00cf4fc964ff"
    kept = [{"scheme": "afterok", "value": one}, {"scheme": "afterany", "value": two}]
    for line in (
        f"#SBATCH -n1 -d afterok:{one},afterany:{two}",
        f"#PBS -l select=1 -W depend=afterok:{one},afterany:{two}",
        f"#flux: -n1 --dependency=afterok:{one} --dependency=afterany:{two}",
    ):
        job = script(line)
        assert (job.refused, system(job)["dependencies"]) == ((), kept)
    for line in ("#SBATCH -n1 -d afterok:123", "#SBATCH -n1 -d singleton", "#flux: -n1 --dependency=afterok:f1234"):
        assert "id of a job of rainbow" in script(line).refused[0]


# -- Flux ------------------------------------------------------------------------------------------------------------


#: Each option of `flux batch` that is kept, and what of the jobspec it must change (beside `-n 1`).
KEPT: dict[str, tuple[str, Any]] = {
    "-N 2 -n 2": ("resources.0.count", 2),
    "-n 3": ("resources.0.count", 3),
    "-c 2": ("resources.0.with.0.count", 2),
    "-g 1": ("resources.0.with.1.count", 1),
    "-N 1 --exclusive": ("resources.0.exclusive", True),
    "-B b": ("attributes.system.bank", "b"),
    "-q q": ("attributes.system.queue", "q"),
    "-t 30": ("attributes.system.duration", 1800),
    "--time=90s": ("attributes.system.duration", 90),
    "--job-name=j": ("attributes.system.job.name", "j"),
    "-o cpu-affinity=per-task": ("attributes.system.shell.options.cpu-affinity", "per-task"),
    "-o verbose": ("attributes.system.shell.options.verbose", 1),
    "--setopt=pmi.name=x": ("attributes.system.shell.options.pmi.name", "x"),
    """--setattr=user.a='{"b": [1]}'""": ("attributes.user.a", {"b": [1]}),
    "-S exec.test.run_duration=1s": ("attributes.system.exec.test.run_duration", "1s"),
    "--setattr=.user.c=1": ("attributes.user.c", 1),
    r"--add-file=f:0755='a\nb\n'": (
        "attributes.system.files.f",
        {"mode": 0o100755, "encoding": "utf-8", "data": "a\nb\n"},
    ),
    "--requires='gpu|host:n[0-1]'": (
        "attributes.system.constraints",
        {"or": [{"properties": ["gpu"]}, {"hostlist": ["n[0-1]"]}]},
    ),
    "--begin-time=2000000000": ("attributes.system.dependencies", [{"scheme": "begin-time", "value": "2000000000.0"}]),
    "--dependency=afterok:6F9619FF-8B86-D011-B42D-00CF4FC964FF": (
        "attributes.system.dependencies",
        [{"scheme": "afterok", "value": "6f9619ff-8b86-d011-b42d-00cf4fc964ff"}],
    ),
    "--env=-* --env=PATH --env=X=$HOME/x": ("attributes.system.environment", {"PATH": "/bin", "X": "/home/me/x"}),
    "--env=* --env-remove=[PS]*": ("attributes.system.environment", {"HOME": "/home/me"}),
    "--env=R={{rank}}": ("attributes.system.shell.options.env-expand", {"R": "{{rank}}"}),
    "--rlimit=nofile=64 --rlimit=-core": ("attributes.system.shell.options.rlimit", {"nofile": 64}),
    "--input=in": ("attributes.system.shell.options.input.stdin", {"type": "file", "path": "in"}),
    "--output=out.{{id}} -l": (
        "attributes.system.shell.options.output.stdout",
        {"type": "file", "path": "out.{{id}}", "label": True},
    ),
    "--error=err": ("attributes.system.shell.options.output.stderr", {"type": "file", "path": "err"}),
    "-u": ("attributes.system.shell.options.output.batch-timeout", 0.05),
    "--cwd=/w": ("attributes.system.cwd", "/w"),
    "--signal=USR2@2m": ("attributes.system.shell.options.signal", {"signum": 12, "timeleft": 120.0}),
    "--conf=tbon.fanout=4": ("attributes.system.files.conf.json", {"tbon": {"fanout": 4}}),
    "--broker-opts=-Sa=1,-v": ("tasks.0.command", ["flux", "broker", "-Sa=1", "-v", "{{tmpdir}}/script"]),
    "--dump=d.tgz": ("tasks.0.command", ["flux", "broker", "-Scontent.dump=d.tgz", "{{tmpdir}}/script"]),
}


def _at(document: Any, path: str) -> Any:
    for key in path.replace("conf.json", "conf%json").split("."):
        key = key.replace("%", ".")
        document = document[int(key)] if key.isdecimal() and isinstance(document, list) else document[key]
    return document.get("data", document) if "conf.json" in path else document


@pytest.mark.parametrize("option", KEPT, ids=str)
def test_options_of_flux_are_kept_through_to_what_flux_gets(option: str) -> None:
    path, expected = KEPT[option]
    lines = [f"#flux: {option}"] if "-n" in option.split() else ["#flux: -n1", f"#flux: {option}"]
    job = script(*lines)
    assert job.refused == ()
    assert _at(job.jobspec, path) == expected
    plain = json.loads(json.dumps(job.jobspec))
    if path.endswith("dependencies"):
        plain["attributes"]["system"].pop("dependencies")  # rainbow's own: they are waited for before a cluster has it
    (flux_job,) = V1Translator().translate(read(job.jobspec, dialect="V1"))
    assert flux_job.document == plain


def test_the_table_of_options_is_whole() -> None:
    """Each option of `flux batch` is tried above, translated, or refused with a reason."""
    tried = {word.split("=")[0] for option in KEPT for word in shlex.split(option) if word.startswith("-")}
    for option in flux_options.OPTIONS:
        if "batch" in option.programs and option.fate == "kept":
            assert tried & {*option.flags, "--time"}, option.flags
        assert option.where
    refused = [o for o in flux_options.OPTIONS if "batch" in o.programs and o.fate == "refused"]
    for option in refused:
        line = f"{option.flags[0]}{'' if option.takes == 'none' else '=x'}"
        (said,) = script(f"#flux: -n1 {line}").refused
        assert option.where in said


def test_urgency_becomes_the_priority() -> None:
    assert script("#flux: -n1 --urgency=20").priority == 20
    assert script("#flux: -n1 --urgency=expedite").priority == 31
    with pytest.raises(InvalidInput, match="urgency=hold"):
        script("#flux: -n1 --urgency=hold")


def test_a_batch_job_is_that_of_flux_batch() -> None:
    job = script("#flux: -N2")
    assert job.jobspec["tasks"][0] == {
        "command": ["flux", "broker", "{{tmpdir}}/script"],
        "slot": "task",
        "count": {"per_slot": 1},
    }
    assert size(job) == (2, 2, 1, 0, True)
    options = system(job)["shell"]["options"]
    assert options == {"per-resource": {"type": "node"}, "mpi": "none", "exit-timeout": "none"}
    assert system(job)["files"]["script"]["data"].startswith("#!/bin/bash\n#flux: -N2\n")
    assert set(system(job)["files"]) == {"script"}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", {"properties": ["a"]}),
        ("a b,c", {"properties": ["a", "b", "c"]}),
        ("a & -b", {"and": [{"properties": ["a"]}, {"not": [{"properties": ["b"]}]}]}),
        ("not (a|b)", {"not": [{"or": [{"properties": ["a"]}, {"properties": ["b"]}]}]}),
        ("^gpu rank:0-3", {"and": [{"properties": ["^gpu"]}, {"ranks": ["0-3"]}]}),
    ],
)
def test_constraints_as_text(text: str, tree: dict[str, Any]) -> None:
    assert read_text(text) == tree


@pytest.mark.parametrize("text", ["(a", "a |", "a)", "| a", "colour:red", "host:"])
def test_constraints_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InvalidInput, match="the constraint"):
        read_text(text)


# -- the command line over the script --------------------------------------------------------------------------------


def test_the_command_line_beats_the_script() -> None:
    job = script(
        "#SBATCH -N 2 --ntasks-per-node=4 -t 10 -J old -D /old --gpus-per-node=2",
        nodes=4,
        gpus_per_task=0,
        duration="2h",
        name="new",
        cwd="/new",
        environment={"SLURM_NTASKS": "1", "X": "y"},
        directives=["--queue=debug", "--queue=batch"],
    )
    assert size(job) == (4, 16, 1, 0, False)
    got = system(job)
    assert (got["duration"], job.name, got["cwd"], got["queue"]) == (7200, "new", "/new", "batch")
    assert got["environment"]["X"] == "y"
    assert got["environment"]["SLURM_NTASKS"] == "1"
    assert size(script("#flux: -n 8", tasks=2, cores_per_task=3)) == (None, 2, 3, 0, False)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["#flux: -N2 --noodles=1"], "line 2: .*noodles"),
        (["#flux: -n two"], "line 2: --nslots=two"),
        (["#flux: --queue=x"], "its size"),
        (["#SBATCH -n 0"], "line 2: .*from 1 up"),
        (["#SBATCH -t soon"], "line 2: .*no time"),
        (["#SBATCH -N 4 -n 2"], "leaves nodes idle"),
        (["#SBATCH -N 3 --gpus=8"], "do not divide"),
        (["#SBATCH -J 'open"], "line 2: the quotes"),
        (["#SBATCH --nodes"], "line 2: .*nodes"),
        (["#SBATCH -n 1", "#PBS -N x"], "slurm and pbs"),
        (["#flux: -n1 --add-file=/no/such/file"], "No such file"),
        (["#flux: -n1 --env-file=/no/such/file"], "No such file"),
        (["#flux: -n1 --signal=NOPE@1"], "signal"),
        (["#flux: -n1 --begin-time=tomorrow-ish"], "begin-time"),
        (["#flux: -n1 --rlimit=stack"], "NAME=VALUE"),
        (["#flux: -n1 --conf='{oops'"], "neither JSON nor TOML"),
    ],
)
def test_wrong_scripts_are_one_plain_line(lines: list[str], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        script(*lines)


def test_a_dialect_can_be_chosen() -> None:
    assert script("#SBATCH -n 2", "#PBS -N x", dialect="pbs").name == "x"


@pytest.fixture
def sh(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    alone(monkeypatch, tmp_path)
    return Shell(capsys)


def test_dry_run_prints_the_jobspec_of_a_script_or_a_command(sh: Shell, tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -n 2 --mem=1G\nhostname\n")
    refused = sh("batch --dry-run job.sh", 2)
    assert refused.out == ""
    assert refused.err.splitlines() == [
        "rainbow: job.sh: line 2: --mem=1G: Flux allocates nodes, cores and GPUs, not memory: "
        "ask for the cores or nodes that have it",
        "rainbow: 1 directive of job.sh has no counterpart: remove what is named, or give --ignore-unsupported",
    ]
    for line in ("batch --dry-run", "submit --dry-run --script"):
        said = sh(
            f"{line} {'' if 'batch' in line else 'job.sh '}--ignore-unsupported -n 3 "
            + "job.sh a 'b c'" * ("batch" in line)
            + "a 'b c'" * ("submit" in line)
        )
        assert said.json["resources"][0]["count"] == 3
        assert said.json["tasks"][0]["command"][-2:] == ["a", "b c"]
        assert "ignored: line 2" in said.err
    assert sh("submit --dry-run -N 2 hostname").json["resources"][0]["count"] == 2


def test_a_script_may_come_on_standard_input(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "rainbow.cli", "batch", "--dry-run"],
        input="#!/bin/sh\n#flux: -n4\ntrue\n",
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=environment,
    )
    assert json.loads(done.stdout)["attributes"]["system"]["job"]["name"] == "batch"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("batch nowhere.sh", "nowhere.sh cannot be read: No such file"),
        ("batch .", "cannot be read: Is a directory"),
        ("batch binary", "not UTF-8 text"),
        ("batch plain.txt", "must start with #!"),
        ("batch --directives html ok.sh", "choose one of flux, slurm, pbs, lsf"),
        ("submit --directive=-n1 hostname", "need --script"),
        ("submit --script ok.sh --jobspec x.yaml", "neither --jobspec nor"),
    ],
)
def test_wrong_use_is_one_plain_line(sh: Shell, tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "binary").write_bytes(b"#!/bin/sh\n\xff\xfe")
    (tmp_path / "plain.txt").write_text("hello\n")
    (tmp_path / "ok.sh").write_text("#!/bin/sh\n#flux: -n1\n")
    said = sh(line, 2)
    assert words in said.err
    assert said.err.count("\n") == 1


# -- srun ------------------------------------------------------------------------------------------------------------


SRUN = Path(flux_options.__file__).parent / "srun.sh"


def srun(line: str, tmp_path: Path, *, flux: bool = False, **variables: str) -> subprocess.CompletedProcess[str]:
    """The shim, with a `flux` on PATH that prints what it was called with."""
    (tmp_path / "flux").write_text("#!/bin/sh\nfor word; do printf '[%s]' \"$word\"; done\n")
    (tmp_path / "flux").chmod(0o700)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables} | ({"FLUX_URI": "local:"} if flux else {})
    return subprocess.run(
        ["sh", str(SRUN), *shlex.split(line)], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hostname -s", "run -n 6 -N 2 -c 3 -- hostname -s"),
        ("-n 2 ./app 'a b'", "run -n 2 -c 3 -- ./app|a b"),
        ("-N1 --ntasks=4 --cpus-per-task 1 -l app", "run -n 4 -N 1 -c 1 --label-io -- app"),
        ("--mpi=pmix --cpu-bind=none -t 5 -o out.%j app", "run -n 6 -N 2 -c 3 -ocpu-affinity=off --time-limit=5m"),
        ("--gpus-per-task=2 -- app -x", "run -n 6 -N 2 -c 3 -g 2 -- app -x"),
    ],
)
def test_srun_is_flux_run(line: str, words: str, tmp_path: Path) -> None:
    done = srun(line, tmp_path, flux=True, SLURM_NTASKS="6", SLURM_NNODES="2", SLURM_CPUS_PER_TASK="3")
    expected = "".join(f"[{w.replace('|', '][')}]" for w in words.split())
    if "a b" in words:
        expected = "[run][-n][2][-c][3][--][./app][a b]"
    assert done.stdout.startswith(expected), done


@pytest.mark.parametrize("line", ["--gres=gpu:1 app", "--mem=1G app", "--multi-prog f", "-t 1:00 app", ""])
def test_srun_refuses_what_does_not_map(line: str, tmp_path: Path) -> None:
    done = srun(line, tmp_path, flux=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("srun: ")
    assert done.stderr.count("\n") == 1


def test_srun_without_flux_starts_processes(tmp_path: Path) -> None:
    done = srun("-n 3 sh -c 'echo $SLURM_PROCID; exit $SLURM_PROCID'", tmp_path)
    assert (sorted(done.stdout.split()), done.returncode) == (["0", "1", "2"], 2)
