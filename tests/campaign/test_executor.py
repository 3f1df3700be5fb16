"""Functions as jobs on three clusters: results, exceptions, limits, decorator, and what goes wrong in plain words."""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import pytest

from processes import Site
from rainbow.client import Client
from rainbow.errors import InvalidInput, Refused
from rainbow.executor import Executor, FunctionFailed
from rainbow.executor.calls import outcome, pack
from rig import eventually

LIMIT = 60.0


class Odd(Exception):
    def __init__(self, number: int) -> None:
        super().__init__(f"{number} is odd")
        self.number = number


@pytest.fixture
def pool(client: Client) -> Iterator[Executor]:
    with Executor(client, python=sys.executable, environment={"HOME": "/"}) as made:
        yield made


def test_results_come_home(pool: Executor) -> None:
    big = "x" * 200_000

    def measure(text: str, *, times: int) -> tuple[int, tuple[int, ...]]:
        return len(text) * times, sys.version_info[:2]

    assert pool.submit(measure, big, times=2).result(LIMIT) == (400_000, sys.version_info[:2])


def test_map_keeps_the_order_and_as_completed_sees_each(pool: Executor) -> None:
    assert list(pool.map(pow, range(12), [2] * 12, timeout=LIMIT)) == [n * n for n in range(12)]
    made = {pool.submit(divmod, n, 3): n for n in range(4)}
    for future in futures.as_completed(made, LIMIT):
        assert future.result() == divmod(made[future], 3)


def test_exceptions_come_home_with_their_traceback(pool: Executor) -> None:
    def fails(number: int) -> None:
        print("said before it failed")
        raise Odd(number)

    caught = pool.submit(fails, 3).exception(LIMIT)
    assert isinstance(caught, Odd)
    assert caught.number == 3
    (note,) = caught.__notes__
    assert "in fails" in note
    assert "on " in note.splitlines()[0]


def test_prints_do_not_spoil_the_result(pool: Executor) -> None:
    def noisy() -> int:
        for _ in range(2000):
            print("rainbow-result nonsense")
            print("noise " * 10, file=sys.stderr)
        return 7

    assert pool.submit(noisy).result(LIMIT) == 7


def test_resources_and_the_decorator(pool: Executor, client: Client) -> None:
    @pool.function(cores=2, gpus=1, duration="5m")
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    assert double.__doc__ == "Twice the number."
    assert double(21).result(LIMIT) == 42
    newest = client.jobs(limit=1)[0]
    assert newest.name is not None
    assert newest.name.endswith("double")
    with pytest.raises(InvalidInput, match="no resource 'ram'"):
        pool.function(ram=1)(double)(21)
    document = pack(abs, (1,), {}, {"cores": 2, "gpus": 1, "duration": "5m"}, "python3", None).jobspec
    assert [one["count"] for one in document["resources"][0]["with"]] == [2, 1]
    assert document["attributes"]["system"]["duration"] == 300


def test_several_nodes_are_an_instance(pool: Executor) -> None:
    @pool.function(nodes=2)
    def place() -> str:
        return "ran once"

    assert place().result(LIMIT) == "ran once"


def test_what_no_cluster_can_run_says_why(client: Client) -> None:
    with Executor(client, python=sys.executable, resources={"cores": 1000}) as pool:
        with pytest.raises(FunctionFailed, match=r"no-match: .*core"):
            pool.submit(abs, -1).result(LIMIT)


def test_a_function_that_is_killed_or_hangs(client: Client) -> None:
    with Executor(client, python=sys.executable) as pool:
        with pytest.raises(FunctionFailed, match=r"failed on \w+"):
            pool.submit(os._exit, 3).result(LIMIT)
    with Executor(client, python=sys.executable, resources={"duration": 1}) as pool:
        with pytest.raises(FunctionFailed, match="time limit"):
            pool.submit(time.sleep, 60).result(LIMIT)


def test_what_cannot_be_pickled_submits_nothing(pool: Executor, client: Client) -> None:
    before = [job.id for job in client.jobs(limit=5)]
    with pytest.raises(InvalidInput, match=r"abs cannot be pickled: .*lock"):
        pool.submit(abs, threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="3 cannot be called: give a function"):
        pool.submit(3)  # type: ignore[arg-type]
    assert [job.id for job in client.jobs(limit=5)] == before


def test_a_pool_and_its_results_show_how_far_they_are(pool: Executor) -> None:
    results = pool.map(divmod, range(3), [1, 1, 0])
    assert len(results) == 3
    assert [next(results), next(results)] == [(0, 0), (1, 0)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    eventually(lambda: pool._repr_html_() == "<b>rainbow</b> 2 completed, 1 failed", LIMIT)
    rich = pytest.importorskip("rich.progress")
    shown = rich.Progress(disable=True)
    assert list(shown.track(pool.map(abs, [-1, 2], timeout=LIMIT))) == [1, 2]
    (task,) = shown.tasks
    assert task.total == 2


def test_results_that_cannot_come_home_say_why(pool: Executor) -> None:
    with pytest.raises(FunctionFailed, match="cannot be pickled"):
        pool.submit(threading.Lock).result(LIMIT)
    with pytest.raises(FunctionFailed, match=r"has \d+ bytes, at most 65536"):
        pool.submit(os.urandom, 100_000).result(LIMIT)


def test_another_python_is_named(client: Client, tmp_path: Path) -> None:
    other = tmp_path / "python"
    older = """s/"python": "[0-9.]*"/"python": "3.5"/"""
    other.write_text(f"#!/bin/sh\nsed '{older}' \"$2\" > {tmp_path}/call\nexec {sys.executable} $1 {tmp_path}/call\n")
    other.chmod(0o755)
    with Executor(client, python=str(other)) as pool:
        with pytest.raises(FunctionFailed, match=r"Python 3\.\d+ runs here, the function was pickled by 3\.5"):
            pool.submit(abs, -1).result(LIMIT)
    with Executor(client, python="/no/such/python") as pool:
        with pytest.raises(FunctionFailed, match="/no/such/python"):
            pool.submit(abs, -1).result(LIMIT)


def test_cancel_and_shutdown(client: Client) -> None:
    pool = Executor(client, python=sys.executable, resources={"nodes": 2})
    made = [pool.submit(time.sleep, 1) for _ in range(12)]
    made[-1].cancel()
    pool.shutdown(cancel_futures=True)
    assert futures.wait(made, 5).not_done == set()
    assert made[-1].cancelled()
    ends = {future.cancelled() or future.result() for future in made}
    assert ends <= {True, None}
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(abs, 1)

    def quiet() -> bool:
        return all(job.terminal for job in client.jobs(limit=12))

    eventually(quiet, LIMIT)
    states = [job.state for job in client.jobs(limit=12)]
    assert states.count("cancelled") == sum(future.cancelled() for future in made) >= 1


def test_a_result_of_another_job_is_refused() -> None:
    data = zlib.compress(pickle.dumps((True, 1, "")))
    text = f"rainbow-result {hmac.new(b'other', data, 'sha256').hexdigest()} {base64.b64encode(data).decode()}\n"
    assert outcome(text, "other") == (True, 1, "")
    with pytest.raises(FunctionFailed, match="not signed"):
        outcome(text, "key")
    assert outcome("nothing of the kind", "key") is None


def test_the_sweep_of_the_readme_uses_all_clusters(site: Site, client: Client, tmp_path: Path) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    (code,) = re.findall(r"```python file=sweep.py\n(.*?)```", readme, re.DOTALL)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**site.environment(), "RAINBOW_CONFIG": str(site.settings_of("alice"))},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "best of 100: (42, 0)\n", done.stderr
    newest = [job for job in client.jobs(limit=100) if job.name == "point"]
    assert len(newest) == 100
    assert {job.cluster for job in newest} == {"blue", "green", "red"}


# -- jobs in Python --------------------------------------------------------------------------------------------------


def test_jobs_can_be_awaited_and_shown(client: Client) -> None:
    async def both() -> Any:
        jobs = client.submit_many([{"command": f"echo {n}", "name": f"<{n}>"} for n in range(2)])
        return jobs, await asyncio.gather(*jobs)

    jobs, records = asyncio.run(both())
    assert [record.output for record in records] == ["0\n", "1\n"]
    assert jobs[0]._repr_html_().startswith("<b>&lt;0&gt;</b> <code>")
    assert "completed" in jobs[0]._repr_html_()


def test_result_raises_for_what_failed(client: Client) -> None:
    job = client.submit(command=["sh", "-c", "exit 3"])
    with pytest.raises(Refused, match=f"job {job.id} failed: exit 3"):
        job.result(LIMIT)
    assert client.submit(command=["true"]).result(LIMIT).state == "completed"
