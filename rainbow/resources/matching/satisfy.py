"""The matcher alone, on files: what ``rainbow satisfy`` prints.

Each answer is ``{"cluster": name, "match": bool, "slots": int, "unmet": [{code, detail, path}], "error": null}``;
for invalid input `error` is ``{"code": ..., "message": ...}`` and `match` is false.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rainbow.errors import InvalidGraph, InvalidInput, InvalidJobspec, RainbowError
from rainbow.resources.graph.document import text_of
from rainbow.resources.matching.answer import Answer
from rainbow.resources.matching.match import answer
from rainbow.resources.matching.matcher import Matcher, MatcherName
from rainbow.resources.readers.reader import read_graph
from rainbow.resources.readers.subsystem_reader import subsystem_name
from rainbow.resources.readers.summary import Summary

if TYPE_CHECKING:
    from rainbow.jobspec.request import Jobspec, Request

Result = dict[str, Any]
T = TypeVar("T")

MATCHERS = ("count", "fluxion")
DIALECTS = ("V1", "canonical", "nextgen", "nextgen-list")


class Questions:
    """Answers question after question, keeping what was read lately: files, summaries, and requests."""

    def __init__(self, kept: int = 256) -> None:
        self._limit = kept
        self._recent: OrderedDict[Hashable, Any] = OrderedDict()

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key in self._recent:
            self._recent.move_to_end(key)
            return cast(T, self._recent[key])
        made = self._recent[key] = make()
        if len(self._recent) > self._limit:
            self._recent.popitem(last=False)
        return made

    def ask(
        self,
        graph: Path | None,
        subsystems: Sequence[tuple[str | None, Path]],
        jobspec: Path | Mapping[str, Any],
        dialect: str | None = None,
        matcher: str | None = None,
        dominant: str | None = None,
    ) -> Result:
        """Answer one question; never raises. Without a graph, only whether the jobspec is valid is asked."""
        cluster: str | None = None
        try:
            if matcher is not None and matcher not in MATCHERS:
                raise InvalidInput(f"no matcher {matcher!r}: choose one of {', '.join(MATCHERS)}")
            if isinstance(jobspec, Path):
                spec = self._once(("jobspec", jobspec, dialect), lambda: read_jobspec(jobspec, dialect))
            else:
                spec = read_jobspec(jobspec, dialect)
            if graph is None:
                return result(None, Answer(True, 0))
            summary = self._summary(graph, subsystems, dominant)
            cluster = summary.name or graph.name.split(".")[0]
            return result(cluster, self._answer(spec.request, summary, cast(MatcherName, matcher or "count")))
        except RainbowError as exc:
            return failed(cluster, exc)

    def _summary(self, graph: Path, subsystems: Sequence[tuple[str | None, Path]], dominant: str | None) -> Summary:
        whole = ("graph", graph, tuple(subsystems), dominant)

        def linked() -> Summary:
            summary = self._once(("graph", graph, (), dominant), lambda: read_graph(graph, dominant=dominant))
            for name, path in subsystems:
                summary = summary.with_subsystem(name or subsystem_name(path), path)
            return summary

        return self._once(whole, linked) if subsystems else linked()

    def _answer(self, request: Request, summary: Summary, matcher: MatcherName) -> Answer:
        return answer(self._once(("request", request), lambda: Matcher(request)), summary, matcher)


def read_jobspec(source: Path | Mapping[str, Any], dialect: str | None = None) -> Jobspec:
    """Read a jobspec, from a document or from a file (JSON, YAML, `.gz`, `.xz`).

    Raises:
        InvalidJobspec: unreadable, or not a valid jobspec of that dialect.
    """
    # Imported late: a process that only folds graphs needs no jobspec readers.
    from rainbow.jobspec import read

    if dialect is not None and dialect not in DIALECTS:
        raise InvalidInput(f"no dialect {dialect!r}: choose one of {', '.join(DIALECTS)}")
    try:
        document = text_of(source) if isinstance(source, Path) else source
    except InvalidGraph as exc:
        raise InvalidJobspec(str(exc)) from None
    return read(document, dialect=cast(Any, dialect))


def satisfy(
    graph: str | Path | None,
    subsystems: Sequence[str | Path] | Mapping[str, str | Path] = (),
    jobspec: str | Path | Mapping[str, Any] = "",
    dialect: str | None = None,
    matcher: str | None = None,
    dominant: str | None = None,
) -> Result:
    """One question about files (the jobspec may be a document). Never raises.

    `subsystems` are ``NAME=FILE`` or ``FILE``, or files by name. Without a graph, only the jobspec is checked.
    """
    if isinstance(subsystems, Mapping):
        named: list[tuple[str | None, Path]] = [(name, Path(path)) for name, path in subsystems.items()]
    else:
        named = [named_file(str(item), Path()) for item in subsystems]
    spec = Path(jobspec) if isinstance(jobspec, (str, Path)) else jobspec
    return Questions().ask(None if graph is None else Path(graph), named, spec, dialect, matcher, dominant)


def satisfy_rows(path: str | Path, base: str | Path | None = None) -> Iterator[Result]:
    """The answer to each row of a JSON Lines file, in order; a bad row gives an answer with `error`.

    A row is ``{"graph": path or null, "subsystems": [paths], "jobspec": path, "dialect"?, "matcher"?,
    "dominant"?}``; paths are relative to `base`, else to the file's folder.

    Raises:
        InvalidInput: the file itself cannot be read.
    """
    try:
        text = text_of(Path(path))
    except InvalidGraph as exc:
        raise InvalidInput(str(exc)) from None
    folder = Path(base) if base is not None else Path(path).parent
    questions = Questions()
    for line in text.split("\n"):
        if line.strip():
            yield _row(questions, line, folder)


def _row(questions: Questions, line: str, folder: Path) -> Result:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as exc:
        return failed(None, InvalidInput(f"a row is not JSON: {exc}"))
    if not isinstance(row, dict):
        return failed(None, InvalidInput("a row is not an object"))
    graph, jobspec, subsystems = row.get("graph"), row.get("jobspec"), row.get("subsystems") or []
    texts = [row.get(name) for name in ("dialect", "matcher", "dominant")]
    if not isinstance(jobspec, str) or not isinstance(graph, (str, type(None))):
        return failed(None, InvalidInput("a row needs graph (a path or null) and jobspec (a path)"))
    if not isinstance(subsystems, list) or not all(isinstance(item, str) for item in subsystems):
        return failed(None, InvalidInput("subsystems of a row is a list of paths"))
    if not all(isinstance(text, (str, type(None))) for text in texts):
        return failed(None, InvalidInput("dialect, matcher and dominant of a row are texts"))
    named = [named_file(item, folder) for item in subsystems]
    return questions.ask(None if graph is None else folder / graph, named, folder / jobspec, *texts)


def named_file(text: str, folder: Path) -> tuple[str | None, Path]:
    """``NAME=FILE`` or ``FILE``; None stands for the name that the document gives itself."""
    name, sign, rest = text.partition("=")
    if sign and name and rest and "/" not in name and not (folder / text).exists():
        return name, folder / rest
    return None, folder / text


def result(cluster: str | None, found: Answer) -> Result:
    """A match as a plain mapping."""
    unmet = [{"code": one.code, "detail": one.detail, "path": one.path} for one in found.unmet]
    return {"cluster": cluster, "match": found.match, "slots": found.slots, "unmet": unmet, "error": None}


def failed(cluster: str | None, exc: RainbowError) -> Result:
    """An error as a plain mapping of the same keys."""
    error = {"code": exc.code, "message": exc.message}
    return {"cluster": cluster, "match": False, "slots": 0, "unmet": [], "error": error}
