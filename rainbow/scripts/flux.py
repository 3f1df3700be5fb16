"""The options of ``flux batch`` (those of ``flux submit`` and ``flux run`` beside them), and the jobspec they make."""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NoReturn

from rainbow.errors import InvalidInput
from rainbow.jobspec.durations import read_duration
from rainbow.models.dependencies import read_dependencies
from rainbow.scripts import values
from rainbow.scripts.constraint import read_text
from rainbow.scripts.slots import Resources
from rainbow.scripts.translation import NO_DEPENDENCIES

Fate = Literal["kept", "translated", "refused"]


@dataclass(frozen=True, slots=True)
class Option:
    """One option of Flux: `flags`, how it takes a value (`one`, `many`, `none`), and what becomes of it.

    `where` is the place in the jobspec, or why it is refused.
    """

    flags: tuple[str, ...]
    takes: Literal["one", "many", "none"]
    fate: Fate
    where: str
    programs: str = "submit run batch"


_SHELL = "system.shell.options"
_LOCAL = "concerns the program that submits, not the job"

OPTIONS: tuple[Option, ...] = (
    Option(("-N", "--nodes"), "one", "kept", "resources"),
    Option(("-n", "--nslots"), "one", "kept", "resources", "batch"),
    Option(("-c", "--cores-per-slot"), "one", "kept", "resources", "batch"),
    Option(("-g", "--gpus-per-slot"), "one", "kept", "resources", "batch"),
    Option(("-x", "--exclusive"), "none", "kept", "resources"),
    Option(("-n", "--ntasks"), "one", "kept", "resources", "submit run"),
    Option(("-c", "--cores-per-task"), "one", "kept", "resources", "submit run"),
    Option(("-g", "--gpus-per-task"), "one", "kept", "resources", "submit run"),
    Option(("--cores",), "one", "kept", "resources", "submit run"),
    Option(("--tasks-per-node",), "one", "kept", f"{_SHELL}.per-resource", "submit run"),
    Option(("--tasks-per-core",), "one", "kept", f"{_SHELL}.per-resource", "submit run"),
    Option(("--gpus-per-node",), "one", "kept", "resources", "submit run"),
    Option(("--taskmap",), "one", "kept", f"{_SHELL}.taskmap", "submit run"),
    Option(("-B", "--bank"), "one", "kept", "system.bank"),
    Option(("-q", "--queue"), "one", "kept", "system.queue"),
    Option(("-t", "--time-limit"), "one", "kept", "system.duration"),
    Option(("--urgency",), "one", "translated", "the submission's `priority` (hold is refused)"),
    Option(("--job-name",), "one", "kept", "system.job.name"),
    Option(("-o", "--setopt"), "many", "kept", f"{_SHELL}.*"),
    Option(("-S", "--setattr"), "many", "kept", "system.*, user.*"),
    Option(("--add-file",), "many", "kept", "system.files"),
    Option(("--requires", "--require"), "many", "kept", "system.constraints"),
    Option(("--begin-time",), "one", "kept", "system.dependencies"),
    Option(("--env",), "many", "kept", f"system.environment, {_SHELL}.env-expand"),
    Option(("--env-remove",), "many", "kept", "system.environment"),
    Option(("--env-file",), "many", "kept", "system.environment"),
    Option(("--rlimit",), "many", "kept", f"{_SHELL}.rlimit (with a value)"),
    Option(("--input",), "one", "kept", f"{_SHELL}.input"),
    Option(("--output",), "one", "kept", f"{_SHELL}.output"),
    Option(("--error",), "one", "kept", f"{_SHELL}.output"),
    Option(("-u", "--unbuffered"), "none", "kept", f"{_SHELL}.output"),
    Option(("-l", "--label-io"), "none", "kept", f"{_SHELL}.output"),
    Option(("--cwd",), "one", "kept", "system.cwd"),
    Option(("--signal",), "one", "kept", f"{_SHELL}.signal"),
    Option(("--conf",), "many", "kept", "system.files, the broker's command line", "batch"),
    Option(("--broker-opts", "--broker-opt"), "many", "kept", "the broker's command line", "batch"),
    Option(("--dump",), "one", "kept", "the broker's command line", "batch"),
    Option(("--dependency",), "many", "kept", "system.dependencies (on jobs of rainbow)"),
    Option(("--flags",), "many", "refused", "the agent submits to Flux, with flags of its own"),
    Option(("--wrap",), "none", "refused", "write the script with its first line #!/bin/sh", "batch"),
    Option(("--cc",), "one", "refused", "submit each, or use `rainbow bulk`", "submit"),
    Option(("--bcc",), "one", "refused", "submit each, or use `rainbow bulk`", "submit"),
    Option(("--dry-run", "--dry"), "none", "refused", f"{_LOCAL}: give it to `rainbow batch`"),
    Option(("--quiet",), "none", "refused", _LOCAL),
    Option(("--wait",), "none", "refused", f"{_LOCAL}: `rainbow submit --wait`", "submit"),
    Option(("--wait-event",), "one", "refused", f"{_LOCAL}: `rainbow watch`", "submit run"),
    Option(("--watch",), "none", "refused", f"{_LOCAL}: `rainbow logs --follow`", "submit"),
    Option(("--log",), "one", "refused", f"{_LOCAL}: `rainbow logs`", "submit"),
    Option(("--log-stderr",), "one", "refused", f"{_LOCAL}: `rainbow logs`", "submit"),
    Option(("--progress",), "none", "refused", f"{_LOCAL}: `rainbow bulk` shows it", "submit"),
    Option(("--jps",), "none", "refused", _LOCAL, "submit"),
    Option(("-v", "--verbose"), "none", "refused", _LOCAL, "submit run"),
    Option(("--list-plugins",), "none", "refused", _LOCAL),
)


def reason(flag: str) -> str | None:
    """Why `flag` of ``flux batch`` is refused, None if it is not."""
    return next((o.where for o in OPTIONS if o.fate == "refused" and flag in o.flags and "batch" in o.programs), None)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


def _parser() -> _Parser:
    parser = _Parser(prog="flux batch", add_help=False)
    for option in OPTIONS:
        if "batch" not in option.programs:
            continue
        if option.fate == "refused":
            many = {"action": "store_true"} if option.takes == "none" else {"action": "append"}
            parser.add_argument(*option.flags, dest=f"refused{option.flags[-1]}", **many)  # type: ignore[arg-type]
        elif option.flags[0] in ("--env", "--env-remove", "--env-file"):
            prefix = {"--env": "", "--env-remove": "-", "--env-file": "^"}[option.flags[0]]
            parser.add_argument(option.flags[0], dest="env", action="append", type=prefix.__add__)
        elif option.takes == "none":
            parser.add_argument(*option.flags, action="store_true")
        else:
            parser.add_argument(*option.flags, action="append" if option.takes == "many" else "store")
    return parser


@dataclass(slots=True)
class Parsed:
    """What a list of Flux's options asks for. `refused` has a line for each option that has no counterpart."""

    resources: Resources = field(default_factory=Resources)
    options: argparse.Namespace = field(default_factory=argparse.Namespace)
    refused: list[str] = field(default_factory=list)


def parse(words: Sequence[str], parsed: Parsed | None = None) -> Parsed:
    """Parse `words` as ``flux batch`` does, on top of what was `parsed` before.

    Raises:
        InvalidInput: an unknown option, a missing value, a number out of range.
    """
    parsed = parsed or Parsed()
    options, rest = _PARSER.parse_known_args(list(words), parsed.options)
    if rest:
        raise InvalidInput(f"{rest[0]}: unknown option or value")
    parsed.options = options
    for name in [name for name, value in vars(options).items() if name.startswith("refused-") and value]:
        flag = name.removeprefix("refused")
        parsed.refused.append(f"{flag}: {reason(flag)}")
        setattr(options, name, None)
    options.dependency = [text for text in options.dependency or () if _of_rainbow(text, parsed)]
    asked = parsed.resources
    for attribute, option in (
        ("nodes", "nodes"),
        ("tasks", "nslots"),
        ("cores_per_task", "cores_per_slot"),
        ("gpus_per_task", "gpus_per_slot"),
    ):
        if (value := getattr(options, option)) is not None:
            setattr(
                asked, attribute, values.count(value, f"--{option.replace('_', '-')}", 0 if "gpus" in option else 1)
            )
    asked.exclusive = asked.exclusive or options.exclusive
    return parsed


def _of_rainbow(text: str, parsed: Parsed) -> bool:
    try:
        read_dependencies(text)
    except InvalidInput:
        parsed.refused.append(f"--dependency={text}: {NO_DEPENDENCIES}")
        return False
    return True


_PARSER = _parser()


# -- into the jobspec ---------------------------------------------------------------------------------


def apply(options: argparse.Namespace, document: dict[str, Any], environ: Mapping[str, str]) -> None:
    """Write what `options` say beside resources, duration and name into a V1 `document`.

    `environ` is that of the submitter: only what ``--env`` rules name goes from it into the job.

    Raises:
        InvalidInput: a value that cannot be read, with the option's name.
    """
    system: dict[str, Any] = document["attributes"]["system"]
    shell = system["shell"]["options"]
    system["environment"], expand = environment(options.env or (), environ, system.get("environment") or {})
    if expand:
        shell["env-expand"] = expand
    for name in ("queue", "bank", "cwd"):
        if getattr(options, name) is not None:
            system[name] = getattr(options, name)
    if limits := values.limits(options.rlimit or ()):
        shell["rlimit"] = limits
    if options.signal is not None:
        shell["signal"] = _signal(options.signal)
    if options.requires:
        system["constraints"] = read_text(" ".join(options.requires))
    if options.begin_time is not None:
        when = {"scheme": "begin-time", "value": str(begin_time(options.begin_time))}
        system.setdefault("dependencies", []).append(when)
    for scheme, job_id in read_dependencies(options.dependency):
        system.setdefault("dependencies", []).append({"scheme": scheme, "value": job_id})
    _streams(options, shell)
    _broker(options, document, system)
    for text in options.setopt or ():
        key, value = values.assignment("--setopt", text)
        values.put(shell, key, value)
    for text in options.setattr or ():
        key, value = values.assignment("--setattr", text)
        key = key.removeprefix(".").removeprefix("attributes.")
        if not key.startswith(("user.", "system.")):
            key = f"system.{key}"
        values.put(document["attributes"], key, value)
    for text in options.add_file or ():
        name, entry = values.attached(text)
        system.setdefault("files", {})[name] = entry


def duration(options: argparse.Namespace) -> float | None:
    """The time limit in seconds: a number without a unit is minutes, as Flux's commands take it."""
    if options.time_limit is None:
        return None
    text: str = options.time_limit
    try:
        seconds = read_duration(text)
    except InvalidInput:
        raise InvalidInput(f"--time-limit={text}: write minutes, or a number with s, m, h or d") from None
    return seconds * 60 if re.fullmatch(r"[0-9.]+", text) else seconds


def priority(options: argparse.Namespace) -> int | None:
    """The urgency as a submission's priority. Raises InvalidInput for ``hold`` and what is out of range."""
    if options.urgency is None:
        return None
    text: str = {"default": "16", "expedite": "31"}.get(options.urgency, options.urgency)
    if not text.isdecimal() or not 1 <= int(text) <= 31:
        raise InvalidInput(f"--urgency={options.urgency}: write 1 to 31, default or expedite")
    return int(text)


def begin_time(text: str) -> float:
    """Seconds since 1970 of ``+5m``, a date and time (ISO 8601, local unless it says its zone) or a number of them."""
    try:
        if text.startswith("+"):
            return round(datetime.now().timestamp() + read_duration(text[1:]), 3)
        if re.fullmatch(r"[0-9]{9,11}(\.[0-9]*)?", text):
            return float(text)
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, InvalidInput):
        raise InvalidInput(f"--begin-time={text}: write +5m or 2026-05-01T12:00:00") from None


def environment(
    rules: Sequence[str], environ: Mapping[str, str], base: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The environment that ``--env`` `rules` make, on top of `base`, and the values that Flux's shell fills in.

    ``NAME=VALUE`` sets, ``PATTERN`` takes from `environ` (never rainbow's own variables), ``-PATTERN`` removes,
    ``^FILE`` reads rules from a file.
    """
    made: dict[str, str] = dict(base)
    expand: dict[str, str] = {}
    for rule in rules:
        if rule.startswith("^"):
            lines = [line.strip() for line in values.text_of(rule[1:], "--env-file").splitlines()]
            made, more = environment([line for line in lines if line and not line.startswith("#")], environ, made)
            expand |= more
        elif rule.startswith("-"):
            made = {name: value for name, value in made.items() if not _matches(name, rule[1:])}
        elif "=" not in rule:
            made |= {n: v for n, v in environ.items() if _matches(n, rule) and not n.startswith("RAINBOW_")}
        else:
            name, _, value = rule.partition("=")
            if not name or "\0" in rule:
                raise InvalidInput(f"--env={rule}: write NAME=VALUE, a pattern, -PATTERN or ^FILE")
            if "{{" in value:
                expand[name] = value
                continue
            made[name] = _expanded(value, {**environ, **made})
    return made, expand


def _expanded(value: str, known: Mapping[str, str]) -> str:
    return re.sub(r"\$(?:(\w+)|\{(\w+)\})", lambda match: known.get(match[1] or match[2], ""), value)


def _matches(name: str, pattern: str) -> bool:
    if pattern.startswith("/"):
        try:
            return re.match(pattern.strip("/"), name) is not None
        except re.error:
            raise InvalidInput(f"--env={pattern}: no regular expression") from None
    return fnmatch.fnmatchcase(name, pattern)


def _signal(text: str) -> dict[str, Any]:
    name, _, left = text.partition("@")
    try:
        number = int(name) if name.isdecimal() else signal.Signals[f"SIG{(name or 'USR1').upper().removeprefix('SIG')}"]
        return {"signum": int(number), "timeleft": read_duration(left or "60s")}
    except (KeyError, InvalidInput):
        raise InvalidInput(f"--signal={text}: write SIGNAL@TIME, as USR1@60s") from None


def _streams(options: argparse.Namespace, shell: dict[str, Any]) -> None:
    if options.input is not None:
        shell["input"] = {"stdin": {"type": "file", "path": options.input}}
    for stream, path in (("stdout", options.output), ("stderr", options.error)):
        if path is not None and path not in ("none", "kvs"):
            entry = {"type": "file", "path": path} | ({"label": True} if options.label_io else {})
            shell.setdefault("output", {})[stream] = entry
    if options.unbuffered:
        output = shell.setdefault("output", {})
        for stream in ("stdout", "stderr"):
            output.setdefault(stream, {})["buffer"] = {"type": "none"}
        output["batch-timeout"] = 0.05
        shell.setdefault("input", {})["batch-timeout"] = 0.0


def _broker(options: argparse.Namespace, document: dict[str, Any], system: dict[str, Any]) -> None:
    """Options of the batch job's own broker, put before the script in its command."""
    extra = [word for text in options.broker_opts or () for word in text.split(",") if word]
    if options.dump is not None:
        extra.append(f"-Scontent.dump={options.dump}")
    if options.conf:
        system.setdefault("files", {})["conf.json"] = {"mode": 0o100600, "data": values.configuration(options.conf)}
        extra.append("-c{{tmpdir}}/conf.json")
    command = document["tasks"][0]["command"]
    command[2:2] = extra


def submitter() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ
