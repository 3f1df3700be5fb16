"""The web console and the HTTP API over real HTTP, beside real workers, a real agent, and RabbitMQ."""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate

from agentrig import Agents
from rainbow.models.job import TERMINAL
from rainbow.settings import Settings
from rig import Rig, eventually
from webserver import serve

JOB = {"command": ["sh", "-c", "echo hello; echo oops >&2"], "nodes": 1}


@dataclass
class Web:
    """A web program on a port of its own, and the rig behind it."""

    rig: Rig
    url: str
    clients: list[httpx.Client] = field(default_factory=list)

    def api(self, token: str | None = None) -> httpx.Client:
        """An HTTP client with a token (alice's if None)."""
        made = httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token or self.rig.token}"})
        self.clients.append(made)
        return made

    def person(self, token: str | None = None) -> httpx.Client:
        """Somebody with a browser who signed in."""
        made = httpx.Client(base_url=self.url, follow_redirects=True)
        self.clients.append(made)
        assert made.post("/login", data={"token": token or self.rig.token}).url.path == "/"
        return made

    def submit(self, **fields: Any) -> str:
        """Submit as alice; the id."""
        answer = self.api().post("/v1/jobs", json={**JOB, **fields})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["jobs"][0]["id"])

    def ended(self, job: str) -> dict[str, Any]:
        """The record of a job once it has ended."""
        api = self.api()

        def look() -> dict[str, Any] | None:
            record: dict[str, Any] = api.get(f"/v1/jobs/{job}").json()
            return record if record.get("state") in TERMINAL else None

        return eventually(look, 60)


def settings_of(rig: Rig, keyring: Path | None = None, **web: Any) -> Settings:
    given = {"broker": {"url": rig.broker_url}, "web": {"rate": 1000, "burst": 1000, **web}}
    return Settings.model_validate(given | ({"keyring": str(keyring)} if keyring else {}))


@pytest.fixture(scope="module")
def module_vhost(rabbit_server: Any, test_run: Any) -> str:
    url: str = rabbit_server.vhost_url(rabbit_server.kept_vhost(test_run.name))
    return url


@pytest.fixture(scope="module")
def web(module_vhost: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with Rig(module_vhost, f"memory://{uuid.uuid4().hex}") as rig:
        agents = Agents(rig, tmp_path_factory.mktemp("web"))
        try:
            agents.start("blue", executor="local")
            keyring = tmp_path_factory.mktemp("ring") / "keys.json"
            rig.ring.save(keyring)
            for url in serve(settings_of(rig, keyring)):
                made = Web(rig, url)
                yield made
                for client in made.clients:
                    client.close()
        finally:
            agents.close()


# -- the API ---------------------------------------------------------------------------------------------


def test_a_job_from_submission_to_output(web: Web) -> None:
    api = web.api()
    answer = api.post("/v1/jobs", json=JOB)
    assert answer.status_code == 202
    job = answer.json()["jobs"][0]["id"]
    assert answer.headers["location"] == f"/v1/jobs/{job}"
    record = web.ended(job)
    assert record["state"] == "completed"
    assert record["cluster"] == "blue"
    assert record["user"] == "alice"
    output = api.get(f"/v1/jobs/{job}/output").json()
    assert output["stdout"] + output["stderr"] in ("hello\noops\n", "oops\nhello\n")
    assert job in [j["id"] for j in api.get("/v1/jobs", params={"state": "completed"}).json()["jobs"]]


def test_a_submission_that_is_repeated_is_the_same_job(web: Web) -> None:
    job = str(uuid.uuid4())
    answers = [web.api().post("/v1/jobs", json={**JOB, "id": job, "name": "once"}) for _ in range(3)]
    assert [(a.status_code, a.json()["jobs"][0]["id"]) for a in answers] == [(202, job)] * 3
    assert web.ended(job)["attempt"] == 1
    listed = web.api().get("/v1/jobs", params={"text": job}).json()["jobs"]
    assert [(found["id"], found["name"]) for found in listed] == [(job, "once")]


def test_an_array(web: Web) -> None:
    array = web.submit(command=["sh", "-c", "echo point $SLURM_ARRAY_TASK_ID"], array="1-3%2")
    record = web.ended(array)
    assert (record["state"], record["indices"], record["counts"]) == ("completed", "1-3%2", {"completed": 3})
    api = web.api()
    element = api.get(f"/v1/jobs/{array}[2]").json()
    assert (element["array"], element["index"], element["state"]) == (array, 2, "completed")
    assert api.get(f"/v1/jobs/{array}[2]/output").json()["stdout"] == "point 2\n"
    assert api.get(f"/v1/jobs/{array}[9]").status_code == 404
    listed = api.get("/v1/jobs", params={"array": array}).json()["jobs"]
    assert sorted(job["index"] for job in listed) == [1, 2, 3]
    assert element["id"] not in [job["id"] for job in api.get("/v1/jobs").json()["jobs"]]
    wrong = api.post("/v1/jobs", json={**JOB, "array": "1-5:0"})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid")
    assert array in web.person().get(f"/jobs/{array}").text


def test_the_jobspec_of_a_job_is_for_its_submitter_and_for_administrators(web: Web) -> None:
    job = web.submit(environment={"MARK": "</pre>swordfish"}, name="specified")
    web.ended(job)
    spec = web.api().get(f"/v1/jobs/{job}/jobspec").json()
    assert spec["tasks"][0]["command"] == JOB["command"]
    assert spec["attributes"]["system"]["environment"] == {"MARK": "</pre>swordfish"}
    page = web.person().get(f"/jobs/{job}").text
    assert Page(page).problems == []
    assert "&lt;/pre&gt;swordfish" in page
    assert web.api(web.rig.issue("root", role="admin")).get(f"/v1/jobs/{job}/jobspec").json() == spec
    bob = web.api(web.rig.issue("bob")).get(f"/v1/jobs/{job}/jobspec")
    assert (bob.status_code, bob.json()["error"]["code"]) == (404, "not-found")
    agent = web.api(web.rig.issue("blue", role="agent", clusters=["blue"])).get(f"/v1/jobs/{job}/jobspec")
    assert agent.status_code == 403
    assert "swordfish" not in agent.text + bob.text
    # Nor is it in any answer that others may see, or that lists jobs.
    for path in (f"/v1/jobs/{job}", "/v1/jobs", f"/v1/jobs/{job}/events"):
        assert "swordfish" not in web.api().get(path).text


def test_the_jobspec_of_jobs_that_wait_or_are_refused(web: Web) -> None:
    waits = web.submit(nodes=4000, hold=600, environment={"A": "1"})
    refused = web.submit(nodes=4000, environment={"A": "2"})
    array = web.submit(command=["true"], array="1-2", environment={"A": "3"})
    dependent = web.submit(dependency=f"afterok:{waits}", environment={"A": "4"})
    for value, job in enumerate((waits, refused, array, dependent), 1):
        eventually(lambda job=job: web.api().get(f"/v1/jobs/{job}/jobspec").status_code == 200, 60)
        spec = web.api().get(f"/v1/jobs/{job}/jobspec").json()
        assert spec["attributes"]["system"]["environment"] == {"A": str(value)}
    web.ended(array)
    spec = web.api().get(f"/v1/jobs/{array}[1]/jobspec").json()
    assert spec["attributes"]["system"]["environment"] == {"A": "3"}
    for job in (waits, dependent):
        web.api().post(f"/v1/jobs/{job}/cancel")
        web.ended(job)
    assert web.api().get(f"/v1/jobs/{refused}[1]/jobspec").status_code == 404


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ({"dependency": f"afterok:{uuid.UUID(int=7)}"}, "invalid", "no such job (or it is another user's)"),
        ({"array": "0-999999999"}, "invalid", "the array has 1000000000 elements: at most 1000000 are taken"),
        ({"account": "chemistry"}, "denied", "the token does not cover account 'chemistry'"),
    ],
)
def test_the_record_says_why_the_scheduler_refuses(web: Web, fields: dict[str, str], state: str, words: str) -> None:
    """The request is taken before a scheduler has looked at it: why it is no job, its record says."""
    job = str(uuid.uuid4())
    assert web.api().post("/v1/jobs", json={**JOB, "id": job, **fields}).status_code == 202
    record = web.ended(job)
    assert record["state"] == state
    assert words in record["detail"]


def test_jobs_page_by_page(web: Web) -> None:
    answer = web.api().post("/v1/jobs", json={"jobs": [{**JOB, "name": "paged"}] * 7})
    ids = {job["id"] for job in answer.json()["jobs"]}
    for job in ids:
        web.ended(job)
    api, seen, at = web.api(), [], {}
    while True:
        page = api.get("/v1/jobs", params={"limit": 3, "user": "alice", **at}).json()
        seen += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            break
        at = {"before": page["next"]}
    assert len(seen) == len(set(seen))
    assert ids == set(seen[:7])
    assert api.get("/v1/jobs", params={"user": "root"}).json() == {"jobs": [], "next": None}
    person = web.person()
    assert person.get("/jobs", params={"text": "paged"}).text.count("<td>paged</td>") == 7
    older = person.get("/jobs", params={"before": f"{time.time()!r}_{max(ids)}"}).text
    assert 'rel="first"' in older
    assert older.count("<td>paged</td>") == 7
    assert person.get("/jobs?before=nonsense").status_code == 400


def test_the_same_id_is_the_same_job(web: Web) -> None:
    job = str(uuid.uuid4())
    assert web.submit(id=job) == job
    first = web.ended(job)
    assert web.submit(id=job) == job
    again = web.ended(job)
    assert again["attempt"] == first["attempt"] == 1
    assert again["times"] == first["times"]


def test_many_jobs_in_one_request(web: Web) -> None:
    answer = web.api().post("/v1/jobs", json={"jobs": [JOB] * 20})
    ids = [job["id"] for job in answer.json()["jobs"]]
    assert len(set(ids)) == 20
    assert {web.ended(job)["state"] for job in ids} == {"completed"}


def test_events_follow_a_job_to_its_end(web: Web) -> None:
    job = web.submit(command=["sleep", "1"])
    with web.api().stream("GET", f"/v1/jobs/{job}/events", timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        data = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert data[-1]["state"] == "completed"
    assert len(data) > 1


def test_cancel_ends_a_job(web: Web) -> None:
    job = web.submit(command=["sleep", "60"])
    assert web.api().post(f"/v1/jobs/{job}/cancel").status_code == 202
    assert web.ended(job)["state"] == "cancelled"


def test_satisfy_submits_nothing(web: Web) -> None:
    api = web.api()
    assert api.post("/v1/satisfy", json=JOB).json()["clusters"] == ["blue"]
    refused = api.post("/v1/satisfy", json={**JOB, "nodes": 400}).json()
    assert refused["status"] in ("no-match", "unsatisfiable")


def test_clusters(web: Web) -> None:
    listed = web.api().get("/v1/clusters").json()["clusters"]
    assert [c["name"] for c in listed] == ["blue"]
    assert web.api().get("/v1/clusters/blue").json()["totals"] == listed[0]["totals"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/jobs", b"{", 400, "invalid"),
        ("POST", "/v1/jobs", b'{"command": ["true"], "command": ["false"]}', 400, "invalid"),
        ("POST", "/v1/jobs", b'{"command": ["true"], "hold": NaN}', 400, "invalid"),
        ("POST", "/v1/jobs", b"[" * 100_000, 400, "invalid"),
        ("POST", "/v1/jobs", b"[]", 400, "invalid"),
        ("POST", "/v1/jobs", b'{"jobs": []}', 400, "invalid"),
        ("POST", "/v1/jobs", b'{"jobs": {"a": 1}}', 400, "invalid"),
        ("POST", "/v1/jobs", b'{"command": ["true"], "nodes": -1}', 400, "invalid"),
        ("POST", "/v1/jobs", b'{"command": ["true"], "token": "x"}', 400, "invalid"),
        ("POST", "/v1/satisfy", b" " * (2 << 20), 413, "too-large"),
        ("GET", "/v1/jobs/none", b"", 400, "invalid"),
        ("GET", "/v1/jobs/00000000-0000-4000-8000-000000000000", b"", 404, "not-found"),
        ("GET", "/v1/jobs/00000000-0000-4000-8000-000000000000/events", b"", 404, "not-found"),
        ("GET", "/v1/jobs/00000000-0000-4000-8000-000000000000/output", b"", 404, "not-found"),
        ("POST", "/v1/jobs/00000000-0000-4000-8000-000000000000/cancel", b"", 404, "not-found"),
        ("GET", "/v1/jobs?limit=0", b"", 400, "invalid"),
        ("GET", "/v1/jobs?limit=many", b"", 400, "invalid"),
        ("GET", "/v1/jobs?before=nan_x", b"", 400, "invalid"),
        ("GET", "/v1/clusters/red", b"", 404, "not-found"),
        ("GET", "/v1/nothing", b"", 404, "not-found"),
        ("DELETE", "/v1/jobs", b"", 405, "invalid"),
    ],
)
def test_wrong_input_is_one_coded_line(web: Web, method: str, path: str, body: bytes, status: int, code: str) -> None:
    answer = web.api().request(method, path, content=body, timeout=30)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["code"] == code
    assert "\n" not in error["message"]
    assert "Traceback" not in error["message"]


@pytest.mark.parametrize("header", [None, "", "Basic YTpi", "Bearer"])
def test_no_token_is_401(web: Web, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    with httpx.Client(base_url=web.url) as nobody:
        answer = nobody.get("/v1/jobs", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


def test_a_forged_token_is_403_and_others_see_nothing(web: Web) -> None:
    job = web.submit()
    web.ended(job)
    assert web.api("not.a.token").get("/v1/jobs").status_code == 403
    mallory = web.api(web.rig.issue("mallory"))
    assert mallory.get(f"/v1/jobs/{job}").status_code == 404
    assert mallory.get(f"/v1/jobs/{job}/events").status_code == 404
    assert mallory.get(f"/v1/jobs/{job}/output").status_code == 404
    assert mallory.post(f"/v1/jobs/{job}/cancel").status_code in (403, 404)
    assert job not in mallory.get("/v1/jobs").text


def test_the_openapi_document_describes_every_route(web: Web) -> None:
    document = httpx.get(f"{web.url}/openapi.json").json()
    validate(document)
    assert "token" not in document["components"]["schemas"]["SubmitRequest"]["properties"]
    for path, methods in document["paths"].items():
        for method in methods:
            real = path.replace("{id}", str(uuid.uuid4())).replace("{name}", "red")
            answer = web.api().request(method, real, content=b"{}" if method == "post" else None)
            assert answer.status_code != 405, path
            assert str(answer.status_code) in methods[method]["responses"], (path, answer.status_code)


def test_health_and_metrics(web: Web) -> None:
    web.submit()
    assert httpx.get(f"{web.url}/healthz").text == "ok\n"
    assert httpx.get(f"{web.url}/readyz").status_code == 200
    shown = httpx.get(f"{web.url}/metrics").text
    assert re.search(r'rainbow_web_requests_total\{area="v1",status="2xx"\} [1-9]', shown)


def test_a_caller_that_asks_too_often_is_told_and_others_go_on(module_vhost: str, web: Web) -> None:
    for url in serve(settings_of(web.rig, rate=0.1, burst=3)):
        with httpx.Client(base_url=url) as client:
            alice = {"Authorization": f"Bearer {web.rig.token}"}
            assert client.get("/v1/clusters", headers=alice).status_code == 200  # known as good from now on
            time.sleep(1)
            statuses = [client.get("/v1/clusters", headers=alice).status_code for _ in range(5)]
            assert statuses == [200, 200, 200, 429, 429]
            bob = {"Authorization": f"Bearer {web.rig.issue('bob')}"}
            assert client.get("/v1/clusters", headers=bob).status_code == 200


def test_tokens_that_are_made_up_share_the_limit_of_their_address(module_vhost: str, web: Web) -> None:
    """Nor do they use up what a good token has; the registrar is asked about a few of them at a time."""
    for url in serve(settings_of(web.rig, rate=0.1, burst=4)):
        with httpx.Client(base_url=url) as client:
            alice = {"Authorization": f"Bearer {web.rig.token}"}
            assert client.get("/v1/clusters", headers=alice).status_code == 200
            time.sleep(1)
            sent = [JOB, {"box": "x" * 40, "messages": []}]
            made_up = [
                client.post(path, json=body, headers={"Authorization": f"Bearer a.b.{n}"}).status_code
                for n in range(3)
                for path, body in zip(("/v1/jobs", "/v1/messages"), sent, strict=True)
            ]
            assert made_up[3:] == [429] * 3, made_up
            cookie = {"Cookie": "rainbow_session=made-up"}
            assert client.get("/jobs", headers=cookie).status_code == 429
            assert client.get("/v1/clusters", headers=alice).status_code == 200


def test_without_a_broker_it_answers_503_and_is_not_ready(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"broker": {"url": "amqp://127.0.0.1:9/", "connect_timeout": 1}, "web": {"rate": 1000}}
    )
    settings = settings.model_copy(update={"token": None})
    for url in serve(settings):
        answer = httpx.get(f"{url}/v1/clusters", headers={"Authorization": "Bearer x"}, timeout=60)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "broker-unavailable"
        assert httpx.get(f"{url}/readyz").status_code == 503
        assert httpx.get(f"{url}/healthz").status_code == 200


# -- the console -----------------------------------------------------------------------------------------


class Page(HTMLParser):
    """What a page must have for people who cannot see it, or have no mouse."""

    _VOID = frozenset({"meta", "link", "img", "input", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.problems: list[str] = []
        self.seen: list[str] = []
        self.ids: list[str] = []
        self.labelled: set[str] = set()
        self.controls: list[str] = []
        self.in_label = 0
        self.lang = False
        self.feed(text)
        self.close()
        if self.stack:
            self.problems.append(f"not closed: {self.stack}")
        self.problems += [f"no label for {c}" for c in self.controls if c not in self.labelled]
        self.problems += [f"id {i} is there twice" for i in set(self.ids) if self.ids.count(i) > 1]
        self.problems += [f"no {tag}" for tag in ("title", "main", "h1", "header") if tag not in self.seen]
        if self.seen.count("h1") != 1:
            self.problems.append("not one h1")
        if not self.lang:
            self.problems.append("no language")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.seen.append(tag)
        if tag == "html":
            self.lang = given.get("lang") == "en"
        if "id" in given:
            self.ids.append(given["id"] or "")
        if "style" in given or any(name.startswith("on") for name in given):
            self.problems.append(f"inline style or script in <{tag}>, which the policy forbids")
        if tag == "label":
            self.in_label += 1
            self.labelled.add(given.get("for") or "")
        if tag in ("input", "textarea", "select") and given.get("type") != "hidden":
            name = given.get("id") or given.get("name") or "?"
            self.controls.append(name)
            if self.in_label:
                self.labelled.add(name)
        if tag == "img" and "alt" not in given:
            self.problems.append("an image without alt")
        if tag == "svg" and not given.get("aria-label"):
            self.problems.append("a picture without a label")
        if tag == "script" and "src" not in given:
            self.problems.append("an inline script")
        if tag not in self._VOID and tag not in ("p", "li", "option", "rect"):
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag == "label":
            self.in_label -= 1
        if tag in ("p", "li", "option"):
            return
        if not self.stack or self.stack[-1] != tag:
            self.problems.append(f"</{tag}> closes {self.stack[-1:]}")
            return
        self.stack.pop()


def pages_of(job: str) -> list[str]:
    return [
        "/",
        "/clusters",
        "/clusters/blue",
        "/jobs",
        f"/jobs/{job}",
        "/timeline?window=1d",
        "/jobs?text=x&user=alice",
        "/waiting",
        "/users",
    ]


def test_every_page_can_be_read_and_obeys_the_policy(web: Web) -> None:
    job = web.submit(name="<b>bold</b>")
    web.ended(job)
    person = web.person()
    for path in pages_of(job):
        answer = person.get(path)
        assert answer.status_code == 200, path
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert Page(answer.text).problems == [], path
        assert "<b>bold" not in answer.text
    assert "&lt;b&gt;bold" in person.get(f"/jobs/{job}").text
    assert job in person.get("/timeline?window=1d").text
    assert Page(httpx.get(f"{web.url}/login").text).problems == []


def test_pages_need_a_session_and_the_cookie_is_kept_from_scripts(web: Web) -> None:
    with httpx.Client(base_url=web.url) as client:
        for path in ("/", "/jobs", "/clusters", "/live/overview"):
            assert client.get(path).headers["location"] == "/login"
        answer = client.post("/login", data={"token": "nonsense"})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers
        cookie = client.post("/login", data={"token": web.rig.token}).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert web.rig.token.lower() not in cookie


def csrf_of(text: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def test_a_change_needs_the_form_of_its_own_session(web: Web) -> None:
    job = web.submit(command=["sleep", "60"])
    person, other = web.person(), web.person(web.rig.issue("bob"))
    foreign = csrf_of(other.get("/").text)
    for data in ({}, {"csrf": ""}, {"csrf": foreign}):
        assert person.post(f"/jobs/{job}/cancel", data=data).status_code == 403
    own = csrf_of(person.get(f"/jobs/{job}").text)
    assert other.post(f"/jobs/{job}/cancel", data={"csrf": foreign}).status_code in (403, 404)
    assert web.api().get(f"/v1/jobs/{job}").json()["state"] != "cancelled"
    assert person.post(f"/jobs/{job}/cancel", data={"csrf": own}).status_code == 200
    assert web.ended(job)["state"] == "cancelled"


def test_signing_out_ends_the_session(web: Web) -> None:
    person = web.person()
    cookie = dict(person.cookies)
    assert person.post("/logout", data={"csrf": csrf_of(person.get("/").text)}).url.path == "/login"
    with httpx.Client(base_url=web.url, cookies=cookie) as thief:
        assert thief.get("/").headers["location"] == "/login"


def test_a_submitter_sees_own_jobs_only(web: Web) -> None:
    job = web.submit()
    web.ended(job)
    bob = web.person(web.rig.issue("bob"))
    assert job not in bob.get("/jobs").text
    assert bob.get(f"/jobs/{job}").status_code == 404
    assert job not in bob.get("/timeline?window=1d").text


def test_a_cluster_is_drawn(web: Web) -> None:
    page = web.person().get("/clusters/blue").text
    assert "Resources of blue: cluster; " in page
    assert '<rect class="node"' in page


def test_who_waits_for_what(web: Web) -> None:
    jobs = [web.submit(nodes=4000, hold=600) for _ in range(3)]
    for job in jobs:
        eventually(lambda job=job: web.api().get(f"/v1/jobs/{job}").json().get("state") == "held", 60)
    person = web.person()
    text = person.get("/waiting").text
    row = next(row for row in text.split("<tr>") if "alice" in row and ">3</a>" in row)
    link = re.search(r'href="([^"]+)"', row)
    assert link is not None
    shown = person.get(link[1].replace("&amp;", "&")).text
    assert all(job in shown for job in jobs)
    users = person.get("/users").text
    assert "alice" in users
    assert "alice" not in web.person(web.rig.issue("bob")).get("/users").text.split("<main")[1]
    for job in jobs:
        web.api().post(f"/v1/jobs/{job}/cancel")
        web.ended(job)


def test_waiting_jobs_name_what_they_wait_for_and_shares_what_is_due(web: Web) -> None:
    first = web.submit(command=["sleep", "60"])
    second = web.submit(dependency=f"afterok:{first}", name="second")
    wide = web.submit(nodes=4000, hold=600, name="wide")
    web.rig.rpc.call({"op": "share-set", "user": "alice", "terms": {"weight": 3, "max_running": 70}})
    for job in (second, wide):
        eventually(lambda job=job: web.api().get(f"/v1/jobs/{job}").json().get("state") == "held", 60)
    text = web.person().get("/waiting").text
    assert Page(text).problems == []
    row = next(row for row in text.split("<tr>") if f'<a href="/jobs/{second}">second</a>' in row)
    assert f'waits for afterok:<a href="/jobs/{first}">{first}</a>' in row
    shares = text[text.index("<h2>Fair shares") :]
    mine = next(row for row in shares.split("<tr") if "<td>alice</td>" in row)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", mine)
    assert cells[2] == "3"
    assert cells[-1] == "70 running"
    assert int(cells[5]) >= 2, "those that wait"
    assert int(cells[6]) >= 1, "the one that runs"
    page = web.person().get(f"/jobs/{second}").text
    assert Page(page).problems == []
    assert "What it waits for" in page
    assert f'<a href="/jobs/{first}">' in page
    others = web.person(web.rig.issue("bob")).get("/waiting").text
    assert "alice" not in others.split("<main")[1]
    assert first not in others
    web.rig.rpc.call({"op": "share-set", "user": "alice", "unset": True})
    for job in (second, wide, first):
        web.api().post(f"/v1/jobs/{job}/cancel")
    web.ended(first)


def test_the_timeline_zooms_and_moves(web: Web) -> None:
    job = web.submit(command=["sleep", "0.2"])
    web.ended(job)
    person = web.person()
    text = person.get("/timeline?window=1m").text
    assert job in text
    assert "Later" not in text
    links = {
        name: href.replace("&amp;", "&") for href, name in re.findall(r'href="(/timeline[^"]*)"[^>]*>(\w+)<', text)
    }
    assert {"Earlier", "1m", "5m", "1d"} <= links.keys()
    for _ in range(3):  # until the minute in which the job ran has passed
        text = person.get(links["Earlier"]).text
        links = {n: h.replace("&amp;", "&") for h, n in re.findall(r'href="(/timeline[^"]*)"[^>]*>(\w+)<', text)}
    assert job not in text
    assert job in person.get(links["5m"]).text, "the wider window around the same time has it"
    assert job in person.get(links["Now"]).text
    assert person.get("/timeline?until=soon").status_code == 400


def test_dead_letters_are_for_administrators(web: Web) -> None:
    rig = web.rig
    rig.publish(json.dumps({"token": rig.token, "colour": "<i>red</i>"}).encode())
    rig.publish(b"{nonsense")
    admin = web.person(rig.issue("root", role="admin"))
    rows = eventually(lambda: found if len(found := dead_keys(admin)) == 2 else None, 60)
    page = admin.get("/dead").text
    assert Page(page).problems == []
    assert "unknown field" in page
    letter = next(text for key in rows if "colour" in (text := admin.get(f"/dead/{key}").text))
    assert Page(letter).problems == []
    assert rig.token not in letter
    assert "<i>red" not in letter
    # A submitter finds no way to it, and each change needs the form of its session.
    alice = web.person()
    assert "/dead" not in alice.get("/").text
    own = csrf_of(alice.get("/").text)
    for answer in (
        alice.get("/dead"),
        alice.get(f"/dead/{rows[0]}"),
        alice.post("/dead", data={"csrf": own, "what": "drop", f"key-{rows[0]}": "on"}),
        admin.post("/dead", data={"csrf": own, "what": "drop", f"key-{rows[0]}": "on"}),
    ):
        assert answer.status_code == 403
    csrf = csrf_of(page)
    assert admin.get("/dead/0123456789").status_code == 404
    assert admin.post("/dead", data={"csrf": csrf, "what": "drop"}).status_code == 400
    assert admin.post("/dead", data={"csrf": csrf, "what": "burn", f"key-{rows[0]}": "on"}).status_code == 400
    assert sorted(dead_keys(admin)) == sorted(rows)
    # Replayed, it dies once more, as another letter; dropped, it is gone.
    assert admin.post("/dead", data={"csrf": csrf, "what": "replay", f"key-{nonsense(admin)}": "on"}).status_code == 200
    eventually(lambda: "replayed 1 time" in admin.get(f"/dead/{nonsense(admin)}").text, 60)
    keys = {f"key-{key}": "on" for key in dead_keys(admin)}
    assert admin.post("/dead", data={"csrf": csrf, "what": "drop", **keys}).status_code == 200
    assert "No dead letters." in admin.get("/dead").text


def dead_keys(admin: httpx.Client) -> list[str]:
    return re.findall(r'href="/dead/(\w+)"', admin.get("/dead").text)


def nonsense(admin: httpx.Client) -> str:
    """The key of the letter that is no JSON, once it is there."""

    def look() -> str | None:
        return next((key for key in dead_keys(admin) if "{nonsense" in admin.get(f"/dead/{key}").text), None)

    return eventually(look, 60)


def read_events(client: httpx.Client, path: str, enough: int) -> list[str]:
    """The names of the first events of a stream."""
    names = []
    with client.stream("GET", path, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("event: "):
                names.append(line[7:])
                if len(names) == enough:
                    break
    return names


def test_live_parts_come_as_events(web: Web) -> None:
    person = web.person()
    assert read_events(person, "/live/overview", 1) == ["html"]
    job = web.submit(command=["sh", "-c", "sleep 1; echo done"])
    names = read_events(person, f"/live/jobs/{job}", 100)
    assert names[-1] == "end"
    assert set(names[:-1]) == {"html"}
    assert read_events(person, f"/live/jobs/{job}/output", 100) == ["stdout", "end"]
    assert read_events(person, f"/live/jobs/{uuid.uuid4()}", 100) == ["problem"]


def test_many_pages_share_one_look(web: Web) -> None:
    """What a hundred open pages show is fetched once for all of them: the registrar gets one page's requests."""
    cookies = dict(web.person().cookies)
    registrar = next(w for w in web.rig.service.workers if w.task_name == "registrar")
    shown: list[str] = []
    close = threading.Event()

    def look() -> None:
        with (
            httpx.Client(base_url=web.url, cookies=cookies) as client,
            client.stream("GET", "/live/overview", timeout=60) as answer,
        ):
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    shown.append(line[7:])
                if close.is_set():
                    return

    before = registrar.handled
    threads = [threading.Thread(target=look) for _ in range(100)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(shown) >= 100, 60)
    web.submit()
    eventually(lambda: len(shown) >= 200, 60)
    close.set()
    for thread in threads:
        thread.join(60)
    assert set(shown) == {"html"}
    # A look asks for clusters and jobs: two looks of each page would be 400 questions.
    assert registrar.handled - before < 200


def test_an_unknown_page_is_a_plain_page(web: Web) -> None:
    answer = web.person().get("/nothing")
    assert answer.status_code == 404
    assert Page(answer.text).problems == []
    assert "no such page" in answer.text


def test_the_page_of_a_cluster_has_its_queue_and_its_refusals(web: Web) -> None:
    web.rig.register("red", {"version": 1, "execution": {"R_lite": [{"rank": "0", "children": {"core": "0"}}]}})
    big = web.submit(nodes=2, name="big")
    web.ended(big)
    text = web.person().get("/clusters/red").text
    assert Page(text).problems == []
    refusals = text[text.index("Recent refusals") : text.index("Newest jobs")]
    assert f'<a href="/jobs/{big}">big</a>' in refusals
    assert "needs 2 nodes, has 1" in refusals
    small = web.submit(clusters=["red"])
    eventually(lambda: web.api().get(f"/v1/jobs/{small}").json().get("state") == "assigned")
    eventually(lambda: "1 jobs are in its queue" in web.person().get("/clusters/red").text)
    web.rig.rpc.call({"op": "delete", "cluster": "red"})


def test_a_search_finds_what_is_rare(web: Web) -> None:
    job = web.submit(name="needle")
    web.ended(job)
    person = web.person()
    assert job in person.get("/jobs?text=needle").text
    assert job in person.get(f"/jobs?text={job[:10]}&state=completed").text
    assert "No jobs." in person.get("/jobs?text=needle&state=failed").text
    assert [found["id"] for found in web.api().get("/v1/jobs?text=needle").json()["jobs"]] == [job]
    assert job not in web.person(web.rig.issue("bob")).get("/jobs?text=needle").text
