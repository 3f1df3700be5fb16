"""The search of the console through more jobs than one answer looks at: soon shown, and going on by itself."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import httpx
import pytest

from manyjobs import fill
from rainbow.settings import Settings
from rainbow.web import search
from rainbow_workers.stores.redis.ledger import LOOKED
from rig import Rig
from servers import Private, RedisServer
from webserver import serve

#: More than two answers look at.
JOBS = 2 * LOOKED + 5_000


@dataclass
class Large:
    """A web program beside a store of JOBS jobs. `oldest` are named needle, with one among the newest."""

    url: str
    rig: Rig
    oldest: list[str]
    newest: str

    def person(self, user: str = "alice") -> httpx.Client:
        """Somebody with a browser who signed in."""
        made = httpx.Client(base_url=self.url, follow_redirects=True, timeout=60)
        assert made.post("/login", data={"token": self.rig.issue(user)}).url.path == "/"
        return made


@pytest.fixture(scope="module")
def large(_private_redis: Private[RedisServer]) -> Iterator[Large]:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", _private_redis.server.url) as rig:
        rig.register("blue")
        ids = fill(rig.store, JOBS, {0: "needle", 1: "needle", JOBS - 1: "needle"})
        settings = Settings.model_validate({"broker": {"url": rig.broker_url}, "web": {"rate": 1000, "burst": 1000}})
        for address in serve(settings):
            yield Large(address, rig, [ids[1], ids[0]], ids[-1])


def test_each_answer_of_the_api_is_bounded(large: Large) -> None:
    with httpx.Client(base_url=large.url, headers={"Authorization": f"Bearer {large.rig.token}"}, timeout=60) as api:
        found: list[str] = []
        answers = 0
        after: dict[str, str] = {}
        while True:
            begun = time.monotonic()
            page = api.get("/v1/jobs", params={"text": "needle", **after}).json()
            assert time.monotonic() - begun < 10, "a busy machine takes its time, and not that of all jobs"
            found += [record["id"] for record in page["jobs"]]
            answers += 1
            if page["next"] is None:
                break
            after = {"before": page["next"]}
    assert found == [large.newest, *large.oldest]
    assert answers >= 3


def events_of(person: httpx.Client, path: str) -> list[tuple[str, str]]:
    """Each event of a stream, to its end."""
    found, name, data = [], "", []
    with person.stream("GET", path, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data.append(line[6:])
            elif not line and name:
                found.append((name, "\n".join(data)))
                name, data = "", []
    return found


def test_a_page_shows_what_it_has_and_goes_on(large: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PATIENCE", 0.0)
    with closing(large.person()) as person:
        text = person.get("/jobs?text=needle").text
        assert large.newest in text
        assert large.oldest[0] not in text
        assert re.search(r"Looked through [\d,]+ jobs, back to 1970-01-01", text)
        [path] = re.findall(r'data-search="([^"]+)"', text)
        events = events_of(person, path.replace("&amp;", "&"))
        rows = "".join(data for name, data in events if name == "rows")
        assert re.findall(r'href="/jobs/([^"]+)"', rows) == large.oldest
        assert [name for name, _ in events if name == "looked"]
        assert "Looked through" not in events[-2][1], "all was looked at"
        assert events[-1][0] == "end"
        # Without scripts the link does it.
        seen = [large.newest]
        for _ in range(JOBS // 100):
            links = re.findall(r'<a href="([^"]+)" rel="next">Go on</a>', text)
            if not links:
                break
            text = person.get(links[0].replace("&amp;", "&")).text
            seen += re.findall(r'<a href="/jobs/([^"]+)"', text.split("<tbody>")[1])
        assert seen == [large.newest, *large.oldest]
        assert person.get("/live/jobs?text=needle").status_code == 400
        assert person.get("/live/jobs?text=needle&before=1_x&left=0").status_code == 400


def test_a_search_that_goes_on_shows_the_jobs_of_its_user_alone(large: Large, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PATIENCE", 0.0)
    with closing(large.person("bob")) as bob:
        assert "No jobs." in bob.get("/jobs?text=needle").text
        events = events_of(bob, "/live/jobs?text=needle&before=1e9_z&left=50")
        assert [name for name, _ in events if name == "rows"] == []
        assert events[-1][0] == "end"
