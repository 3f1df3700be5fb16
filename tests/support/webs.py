"""A web program beside real workers and a real agent, and its pages as a screen reader meets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx

from rainbow.models.job import TERMINAL
from rainbow.settings import Settings
from rig import Rig, eventually

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
