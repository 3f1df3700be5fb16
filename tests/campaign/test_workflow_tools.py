"""Snakemake, PSI/J and Parsl, as they come from the registry, over three clusters."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from processes import Site
from rainbow.client import Client

LIMIT = 60.0
SNAKEFILE = """
rule all:
    input: expand("out/{n}.txt", n=range(6)), "sum.txt"

rule square:
    output: "out/{n}.txt"
    threads: 2
    resources: runtime=5
    shell: "echo $(( {wildcards.n} * {wildcards.n} )) > {output}; echo $RAINBOW_JOB_ID >> ids"

rule total:
    input: expand("out/{n}.txt", n=range(6))
    output: "sum.txt"
    resources: rainbow_clusters="red"
    shell: "cat {input} | awk '{{s += $1}} END {{print s}}' > {output}"
"""


@pytest.fixture
def settings(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a user, in force in this process."""
    file = site.settings_of("alice")
    monkeypatch.setenv("RAINBOW_CONFIG", str(file))
    return file


def snakemake(folder: Path, settings: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environment = {**Site.environment(), "RAINBOW_CONFIG": str(settings), "HOME": str(folder)}
    options = ["--executor", "rainbow", "--jobs", "6", "--seconds-between-status-checks", "1", "--latency-wait", "5"]
    return subprocess.run(
        [sys.executable, "-m", "snakemake", *options, *more],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def test_a_snakefile_runs_over_the_clusters(settings: Path, client: Client, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    done = snakemake(tmp_path, settings)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "sum.txt").read_text().strip() == str(sum(n * n for n in range(6)))
    ids = (tmp_path / "ids").read_text().split()
    records = client.wait(ids, timeout=LIMIT)
    assert len(records) == 6
    assert len({record.cluster for record in records}) >= 2
    (total,) = [job for job in client.jobs(limit=20) if job.name and "total" in job.name]
    assert total.cluster == "red"


def test_a_rule_that_fails_says_where(settings: Path, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule all:\n    output: "x"\n    shell: "echo no luck; exit 3"\n')
    done = snakemake(tmp_path, settings)
    assert done.returncode == 1
    assert "rainbow: job " in done.stderr
    assert "failed" in done.stderr


def test_a_rule_that_fits_nowhere_says_why(settings: Path, tmp_path: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule all:\n    output: "x"\n    resources: gpu=50\n    shell: "touch x"\n')
    done = snakemake(tmp_path, settings)
    assert done.returncode == 1
    assert "no-match" in done.stderr
    assert "gpu" in done.stderr


class _Plugin:
    """What the interface's own test class asks for."""

    __test__ = True

    def get_executor(self) -> str:
        return "rainbow"

    def get_executor_settings(self) -> Any:
        from snakemake_executor_plugin_rainbow import ExecutorSettings

        return ExecutorSettings()


def _interface_tests() -> type:
    tests = pytest.importorskip("snakemake.common.tests")
    return type("TestTheInterfaceOfSnakemake", (_Plugin, tests.TestWorkflowsLocalStorageBase), {"__test__": True})


TestTheInterfaceOfSnakemake = pytest.mark.usefixtures("settings")(
    pytest.mark.filterwarnings("ignore")(_interface_tests())
)


# -- PSI/J -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def psij_executor(settings: Path) -> Any:
    from psij import JobExecutor

    assert "rainbow" in JobExecutor.get_executor_names()
    return JobExecutor.get_instance("rainbow", url=str(settings))


def job_of(executor: Any, executable: str, *arguments: str, **spec: Any) -> Any:
    from psij import Job, JobAttributes, JobSpec

    spec.setdefault("attributes", JobAttributes(duration=timedelta(minutes=2)))
    return Job(JobSpec(executable=executable, arguments=list(arguments), **spec))


def test_psij_runs_jobs_with_their_files_and_states(psij_executor: Any, tmp_path: Path) -> None:
    from psij import JobState, ResourceSpecV1

    seen: list[str] = []
    (tmp_path / "in").write_text("from a file")
    (tmp_path / "before.sh").write_text("export WHERE=prepared\n")
    job = job_of(
        psij_executor,
        "/bin/sh",
        "-c",
        'cat; echo " $WHERE $GIVEN"; echo to-err >&2',
        stdin_path=tmp_path / "in",
        stdout_path=tmp_path / "out",
        stderr_path=tmp_path / "err",
        pre_launch=tmp_path / "before.sh",
        environment={"GIVEN": "yes"},
        directory=tmp_path,
        resources=ResourceSpecV1(process_count=1, cpu_cores_per_process=2),
    )
    job.set_job_status_callback(lambda job, status: seen.append(status.state.name))
    psij_executor.submit(job)
    assert job.native_id
    status = job.wait(timeout=timedelta(seconds=LIMIT))
    assert status.state == JobState.COMPLETED, status
    assert status.exit_code == 0
    assert (tmp_path / "out").read_text() == "from a file prepared yes\n"
    assert (tmp_path / "err").read_text() == "to-err\n"
    assert seen[0] == "QUEUED"
    assert seen[-1] == "COMPLETED"


def test_psij_reports_failures_and_cancels(psij_executor: Any) -> None:
    from psij import Job, JobState

    failing = job_of(psij_executor, "/bin/sh", "-c", "exit 7")
    psij_executor.submit(failing)
    status = failing.wait(timeout=timedelta(seconds=LIMIT))
    assert (status.state, status.exit_code) == (JobState.FAILED, 7)
    sleeping = job_of(psij_executor, "/bin/sleep", "300")
    psij_executor.submit(sleeping)
    sleeping.wait(timeout=timedelta(seconds=LIMIT), target_states=[JobState.ACTIVE])
    assert sleeping.native_id in psij_executor.list()
    attached = Job()
    psij_executor.attach(attached, sleeping.native_id)
    sleeping.cancel()
    for job in (sleeping, attached):
        status = job.wait(timeout=timedelta(seconds=LIMIT))
        assert status is not None
        assert status.state == JobState.CANCELED
    assert sleeping.native_id not in psij_executor.list()


def test_psij_refuses_what_has_no_counterpart(psij_executor: Any) -> None:
    from psij import InvalidJobException, JobAttributes, JobSpec, ResourceSpecV1

    for spec, words in (
        ({"resources": ResourceSpecV1(memory=1 << 30)}, "memory"),
        ({"attributes": JobAttributes(queue_name="debug")}, "queue_name"),
        ({"resources": ResourceSpecV1(process_count=4, exclusive_node_use=True)}, "exclusive"),
    ):
        with pytest.raises(InvalidJobException, match=words):
            psij_executor.submit(job_of(psij_executor, "/bin/true", **spec))
    from psij import Job

    with pytest.raises(InvalidJobException, match="executable"):
        psij_executor.submit(Job(JobSpec()))


# -- Parsl -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_parsl_runs_apps_with_their_data_flow(settings: Path, client: Client, tmp_path: Path) -> None:
    import parsl
    from rainbow_parsl import RainbowExecutor

    executor = RainbowExecutor(config=str(settings), python=sys.executable, resources={"duration": "5m"})
    with parsl.load(parsl.Config(executors=[executor], run_dir=str(tmp_path / "runinfo"), retries=0)):

        @parsl.python_app
        def square(number: int, parsl_resource_specification: Any = {}) -> int:  # noqa: B006
            return number * number

        @parsl.python_app
        def total(inputs: Any = ()) -> int:
            return sum(inputs)

        @parsl.python_app
        def fails() -> None:
            raise ValueError("on purpose")

        @parsl.bash_app
        def write(text: str, stdout: str = "") -> str:
            return f"echo {text}"

        parts = [square(n) for n in range(6)]
        parts.append(square(6, parsl_resource_specification={"cores": 2}))
        written = write("hello", stdout=str(tmp_path / "hello.txt"))
        assert total(inputs=parts).result(LIMIT) == sum(n * n for n in range(7))
        assert written.result(LIMIT) == 0
        assert (tmp_path / "hello.txt").read_text() == "hello\n"
        with pytest.raises(ValueError, match="on purpose"):
            fails().result(LIMIT)
        with pytest.raises(Exception, match="write nodes, cores, gpus, duration"):
            square(1, parsl_resource_specification={"ram": 1}).result(LIMIT)
    assert len({job.cluster for job in client.jobs(limit=9)}) >= 2
