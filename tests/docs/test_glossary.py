"""docs/reference/glossary.md has every state word of the program."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from docs.documents import ROOT
from rainbow.client.views import ClusterView
from rainbow.models.job import RETRYABLE_REJECTS, TERMINAL, AnswerStatus, RejectCode, State

REFERENCE = ROOT / "docs" / "reference"
GLOSSARY = (REFERENCE / "glossary.md").read_text()
TERMS = {term.strip("` ").lower() for term in re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)}

#: Participles and adjectives of help texts, settings and errors that mean what any dictionary says.
PLAIN = set(
    re.findall(
        r"\w+",
        """
        added allowed applied asked checked chosen closed contained counted covered created damaged decided
        declared done encoded encrypted ended folded formatted found given granted ignored included installed
        involved kept known left limited listed looked made marked matched missing named needed new old over
        passed picked placed printed proxied reached read ready removed renewed repeated reported required
        restarted said sent served set shown signed skipped sorted started stopped stored taken treated tried
        trusted understood unsigned used valid verified wanted without written wrong
        """,
    )
)


def statuses() -> set[str]:
    return {
        ClusterView(name="c", alive=alive, drained=drained, throttled=throttled).status
        for alive in (True, False)
        for drained in (None, "for repair")
        for throttled in (True, False)
    }


STATES = {*get_args(State), *get_args(AnswerStatus), *get_args(RejectCode), *RETRYABLE_REJECTS, *statuses()}


def test_the_glossary_is_read() -> None:
    assert {"held", "attempt", "dispatch", "waiting", "registration", "throttled"} <= TERMS
    assert set(get_args(State)) >= TERMINAL


@pytest.mark.parametrize("word", sorted(STATES))
def test_every_state_has_a_row(word: str) -> None:
    assert word in TERMS, f"docs/reference/glossary.md says nothing of {word}"


def test_every_row_is_whole() -> None:
    for line in GLOSSARY.splitlines():
        if line.startswith("| ") and not line.startswith("| word"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 5, line
            assert all(cells), line


# -- what people read ----------------------------------------------------------------------------------------------


def texts() -> Iterator[tuple[str, str]]:
    """The generated pages hold all help texts, settings and error codes."""
    for page in ("cli.md", "settings.md", "errors.md", "plugins.md"):
        yield page, (REFERENCE / page).read_text()


_SAID = re.compile(
    r"\b(?:jobs?|clusters?|agents?|dispatch(?:es)?)(?: that)? (?:is|are|was|were|be|been) "
    r"(?:not |also |still |no longer )?([a-z-]+(?:ed|en|ing|ent|ive|able))\b"
)


def words_of_state(text: str) -> set[str]:
    """What a text says a job, a cluster, an agent or a dispatch is."""
    return {match[1] for match in _SAID.finditer(text.lower())}


def test_words_of_state_are_found() -> None:
    assert words_of_state("A job is zombified. Clusters that are not drained; the job was lost.") == {
        "zombified",
        "drained",
    }


@pytest.mark.parametrize(("page", "text"), list(texts()), ids=lambda value: value if len(value) < 40 else "")
def test_what_jobs_and_clusters_are_is_in_the_glossary(page: str, text: str) -> None:
    unknown = words_of_state(text) - TERMS - PLAIN
    assert not unknown, f"docs/reference/{page}: say it with a word of glossary.md, or add one: {sorted(unknown)}"


def columns() -> Iterator[tuple[str, str]]:
    """The columns of the tables that the command line prints."""
    for path in sorted((ROOT / "rainbow" / "cli").rglob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.Tuple) or len(node.elts) < 2:
                continue
            names = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if len(names) == len(node.elts) and "name" in names[:2]:
                yield from ((path.name, name) for name in names)


def test_columns_of_state_are_in_the_glossary() -> None:
    found = list(columns())
    assert ("clusters.py", "reserved") in found
    plain = {*PLAIN, "because", "need"}
    for file, column in found:
        for word in column.lower().split():
            if re.fullmatch(r"[a-z-]+(ed|en|ing|rd)", word):
                assert word in TERMS | plain, f"{file}: the column {column!r} is not in docs/reference/glossary.md"
