"""docs/explanation/life-of-a-job.md names the functions that one real job goes through, in their order."""

from __future__ import annotations

import importlib
import re
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agentrig import Agents
from docs.documents import ROOT
from rainbow.client import Client
from rig import Rig

PAGE = (ROOT / "docs" / "explanation" / "life-of-a-job.md").read_text()
#: The functions of each section that begins with a numbered list, in order.
SECTIONS = {
    title: re.findall(r"^\d+\. `(rainbow[\w.]+)`", text, re.MULTILINE)
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
NAMED = [name for names in SECTIONS.values() for name in names]


class Trace:
    """The first call of each of some functions, in all threads that start while it is set."""

    def __init__(self, names: list[str]) -> None:
        self._wanted = frozenset(names)
        self._last = {name.rsplit(".", 1)[-1] for name in names}
        self.calls: list[str] = []
        self.following = False

    def __call__(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event != "call" or not self.following:
            return
        code = frame.f_code
        if code.co_name not in self._last:
            return  # nearly all calls
        name = f"{frame.f_globals.get('__name__')}.{code.co_qualname}"
        if name in self._wanted and name not in self.calls:
            self.calls.append(name)


@pytest.fixture
def trace() -> Iterator[Trace]:
    before = sys.getprofile()
    made = Trace(NAMED)
    threading.setprofile(made)
    sys.setprofile(made)
    yield made
    sys.setprofile(before)
    threading.setprofile(None)


def test_the_page_has_its_sections() -> None:
    assert list(SECTIONS) == ["In the client", "In the scheduler", "In the agent", "In the recorder"]
    assert min(len(names) for names in SECTIONS.values()) >= 2
    assert len(set(NAMED)) == len(NAMED) > 20


@pytest.mark.parametrize("name", NAMED)
def test_each_function_is_there(name: str) -> None:
    parts = name.split(".")
    at = next(i for i in range(len(parts), 0, -1) if _is_module(".".join(parts[:i])))
    found: Any = importlib.import_module(".".join(parts[:at]))
    for part in parts[at:]:
        found = getattr(found, part)
    assert callable(found)


def _is_module(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def test_a_real_job_goes_the_way_of_the_page(trace: Trace, tmp_path: Path) -> None:
    name = uuid.uuid4().hex
    with Rig(f"memory://{name}", f"memory://{name}") as rig:
        agents = Agents(rig, tmp_path)
        try:
            agents.start("blue")
            with Client(broker=rig.connect("client"), token=rig.token, timeout=20) as client:
                trace.following = True
                assert client.submit(command=["hostname"]).wait(30).state == "completed"
                trace.following = False
        finally:
            agents.close()
    for title, names in SECTIONS.items():
        assert [call for call in trace.calls if call in names] == names, title
    firsts = [trace.calls.index(names[0]) for names in SECTIONS.values()]
    assert firsts == sorted(firsts)
