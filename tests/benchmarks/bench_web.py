"""What the web console costs: pages over 1,000,000 job records, and 1,000 pages that are open at once.

The real programs: `rainbow web`, a registrar, RabbitMQ and Redis, each for themselves. Times are medians of whole
requests of one caller. The open pages are overviews of 20 users, who look at clusters with changing numbers; the cost
is processor time of `rainbow web`, and of the registrar that it asks, as shares of one core.
"""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from bench_heartbeats import _cpu
from bench_relay import _up
from processes import Site
from rainbow.client import Client
from rainbow.models.job import JobEvent
from rainbow.settings import load
from rainbow_workers.stores import StoreOptions, open_store
from rig import eventually, resources
from servers import free_ports
from servers_here import rabbitmq, redis

JOBS = int(os.environ.get("RAINBOW_BENCH_JOBS", "1000000"))
PAGES = int(os.environ.get("RAINBOW_BENCH_PAGES", "1000"))
CLUSTERS, USERS, SECONDS = 20, 20, 20
_BATCH = 1000


def run() -> dict[str, float | None]:
    with rabbitmq() as amqp_url, redis() as redis_url, tempfile.TemporaryDirectory(prefix="rainbow-bench-") as folder:
        more: dict[str, Any] = {"log_level": "warning", "web": {"rate": 10_000, "burst": 10_000}}
        with Site(Path(folder), amqp_url, redis_url, "bench:", **more) as site:
            registrar = site.scheduler("registrar", name="registrar")
            [port] = free_ports(1)
            url = f"http://127.0.0.1:{port}"
            web = site.start("web", "rainbow.cli", "web", "--listen", f"127.0.0.1:{port}")
            with Client(settings=load(site.config, {})) as client:
                eventually(lambda: _up(client), 60)
                for number in range(CLUSTERS):
                    client.register(f"c{number}", identity="benchmark", graph=resources(nodes=64, cores=32))
                rare = _fill(redis_url)
                eventually(lambda: _answers(url), 60)
                figures = _records(url, site.token("root", "admin"), rare)
                tokens = [site.token(f"u{n}") for n in range(USERS)]
                return figures | _open_pages(url, tokens, client, web.pid, registrar.pid)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def _fill(redis_url: str) -> str:
    """Records of jobs, an hour's worth of seconds apart; the name of one in their middle."""
    store = open_store(StoreOptions(redis_url, prefix="bench:"))
    began, rng = time.time() - JOBS / 100, random.Random(1)
    for start in range(0, JOBS, _BATCH):
        store.jobs.record([_event(n, began, rng) for n in range(start, min(start + _BATCH, JOBS))])
    store.close()
    return f"sweep-{JOBS // 2}"


def _event(number: int, began: float, rng: random.Random) -> JobEvent:
    return JobEvent(
        id=str(uuid.UUID(int=rng.getrandbits(128), version=4)),
        attempt=1,
        cluster=f"c{number % CLUSTERS}",
        state="failed" if number % 1000 == 0 else "completed",
        at=began + number / 100,
        user=f"u{number % USERS}",
        name=f"sweep-{number}",
        returncode=0,
    )


def _records(url: str, token: str, rare: str) -> dict[str, float | None]:
    figures: dict[str, float | None] = {"web_records": float(JOBS)}
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=120) as api:

        def page(**wanted: str) -> dict[str, object]:
            answer = api.get("/v1/jobs", params={"limit": "50", **wanted})
            assert answer.status_code == 200, answer.text
            found: dict[str, object] = answer.json()
            return found

        def after(many: int, **wanted: str) -> str:
            """The position after so many jobs."""
            before = ""
            for _ in range(many // 10_000):
                before = str(page(**{**wanted, "limit": "10000", "before": before})["next"])
            return before

        deep = after(JOBS // 2)
        for name, wanted in {
            "newest": {},
            "deep": {"before": deep},
            "state": {"state": "failed"},
            "user": {"user": "u7"},
            "cluster_and_state": {"cluster": "c0", "state": "failed"},
            "deep_user": {"user": "u7", "before": deep},
        }.items():
            assert page(**wanted)["jobs"], name
            figures[f"web_page_{name}_ms"] = _milliseconds(partial(page, **wanted))
        began = time.perf_counter()
        after(JOBS)
        figures["web_all_pages_s"] = time.perf_counter() - began
    with httpx.Client(base_url=url, follow_redirects=True, timeout=120) as person:
        assert person.post("/login", data={"token": token}).url.path == "/"
        figures["web_html_newest_ms"] = _milliseconds(lambda: person.get("/jobs"))
        figures["web_html_search_ms"] = _milliseconds(lambda: person.get("/jobs", params={"text": "nowhere"}))
        began = time.perf_counter()
        text, path = "", f"/jobs?text={rare}"
        while f">{rare}<" not in text:
            text = person.get(path).text
            path = text.rpartition('rel="next"')[0].rpartition('href="')[2].partition('"')[0].replace("&amp;", "&")
        figures["web_search_half_s"] = time.perf_counter() - began
    return figures


def _milliseconds(call: Callable[[], object]) -> float:
    def once() -> float:
        began = time.perf_counter()
        call()
        return time.perf_counter() - began

    return median(once() for _ in range(9)) * 1e3


def _open_pages(url: str, tokens: list[str], client: Client, web: int, registrar: int) -> dict[str, float | None]:
    got = [0] * PAGES

    async def look(number: int, cookies: dict[str, str], stop: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        cookie = "; ".join(f"{name}={value}" for name, value in cookies.items())
        writer.write(f"GET /live/overview HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n".encode())
        await writer.drain()
        while not stop.is_set():
            line = await reader.readline()
            if not line:
                break
            got[number] += line.startswith(b"event: html")
        writer.close()

    async def all_pages() -> tuple[float, float, float]:
        sessions = []
        for token in tokens:
            async with httpx.AsyncClient(base_url=url) as person:
                await person.post("/login", data={"token": token})
                sessions.append(dict(person.cookies))
        stop = asyncio.Event()
        looks = [asyncio.create_task(look(n, sessions[n % len(sessions)], stop)) for n in range(PAGES)]
        while not all(got):
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        before, began = (_cpu(web), _cpu(registrar)), time.perf_counter()
        got[:] = [0] * PAGES
        await asyncio.sleep(SECONDS)
        wall = time.perf_counter() - began
        spent = _cpu(web) - before[0], _cpu(registrar) - before[1]
        pushed = sum(got)
        stop.set()
        for task in looks:
            task.cancel()
        await asyncio.gather(*looks, return_exceptions=True)
        return spent[0] / wall, spent[1] / wall, pushed / wall

    with Changing(client):
        web_cores, registrar_cores, pushed = asyncio.run(all_pages())
    assert pushed > PAGES / 10, "nothing changed on the pages"
    return {
        "web_open_pages": float(PAGES),
        "web_open_pages_cores": web_cores,
        "web_open_pages_registrar_cores": registrar_cores,
        "web_pushed_per_s": pushed,
    }


class Changing:
    """Every second the clusters report other numbers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        for second in _forever():
            for number in range(CLUSTERS):
                values = {"nodes_free": (second + number) % 64, "jobs_running": second % 50}
                self._client.set_state(f"c{number}", values)
            if self._stop.wait(1.0):
                return

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)


def _forever() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


if __name__ == "__main__":
    for name, value in run().items():
        print(f"{name:36} {value:12.3f}")
