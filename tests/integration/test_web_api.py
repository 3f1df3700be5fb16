"""The HTTP API over real HTTP, beside real workers, a real agent, and RabbitMQ."""

from __future__ import annotations

import json
import re
import time
import uuid
from functools import partial
from pathlib import Path

import httpx
import pytest
from openapi_spec_validator import validate

from rainbow.settings import Settings
from rig import eventually
from webs import JOB, Page, Web, settings_of
from webserver import serve


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
    agent = web.api(web.rig.issue("blue", role="agent", clusters=("blue",))).get(f"/v1/jobs/{job}/jobspec")
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

    def answered(job: str) -> bool:
        return web.api().get(f"/v1/jobs/{job}/jobspec").status_code == 200

    for value, job in enumerate((waits, refused, array, dependent), 1):
        eventually(partial(answered, job), 60)
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
    api, seen = web.api(), []
    at: dict[str, str] = {}
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
    """Sent again at once, and after its end."""
    job = str(uuid.uuid4())
    answers = [web.api().post("/v1/jobs", json={**JOB, "id": job, "name": "once"}) for _ in range(3)]
    assert [(a.status_code, a.json()["jobs"][0]["id"]) for a in answers] == [(202, job)] * 3
    first = web.ended(job)
    assert web.submit(id=job, name="once") == job
    again = web.ended(job)
    assert again["attempt"] == first["attempt"] == 1
    assert again["times"] == first["times"]
    listed = web.api().get("/v1/jobs", params={"text": job}).json()["jobs"]
    assert [(found["id"], found["name"]) for found in listed] == [(job, "once")]


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
