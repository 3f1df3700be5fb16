"""The pages of the web console over real HTTP, beside real workers, a real agent, and RabbitMQ."""

from __future__ import annotations

import json
import re
import threading
import uuid
from functools import partial

import httpx

from rig import eventually
from webs import Page, Web


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


def held(web: Web, job: str) -> bool:
    return bool(web.api().get(f"/v1/jobs/{job}").json().get("state") == "held")


def test_who_waits_for_what(web: Web) -> None:
    jobs = [web.submit(nodes=4000, hold=600) for _ in range(3)]
    for job in jobs:
        eventually(partial(held, web, job), 60)
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
        eventually(partial(held, web, job), 60)
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
