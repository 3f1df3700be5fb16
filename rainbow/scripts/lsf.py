"""``#BSUB`` options of LSF, in terms of Flux's, as far as they map."""

from __future__ import annotations

import re

from rainbow.errors import InvalidInput
from rainbow.scripts.translation import (
    NO_DEPENDENCIES,
    NO_MAIL,
    NO_MEMORY,
    NO_SITE,
    Handler,
    Table,
    Translation,
    Unsupported,
    array,
    refused,
    word,
)
from rainbow.scripts.values import count


def _limit(made: Translation, value: str) -> None:
    match = re.fullmatch(r"(?:(\d+):)?(\d+)", value.strip())
    if match is None:
        raise InvalidInput(f"-W {value}: write minutes or H:MM")
    made.words.append(f"--time-limit={int(match[1] or 0) * 3600 + int(match[2]) * 60}s")


def _name(made: Translation, value: str) -> None:
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](%\d+)?", value)
    if match is not None:
        array(made, match[2] + (match[3] or ""))
        value = match[1]
    if value:
        made.words.append(f"--job-name={value}")


def _path(option: str) -> Handler:
    def handle(made: Translation, value: str) -> None:
        path = value.replace("%J", "{{array.id}}").replace("%I", "{{array.index}}")
        made.words.append(f"{option}={path}")

    return handle


def _number(attribute: str) -> Handler:
    def handle(made: Translation, value: str) -> None:
        setattr(made.resources, attribute, count(value, attribute))

    return handle


def _requirement(made: Translation, value: str) -> None:
    if value.strip() == "span[hosts=1]":
        made.resources.nodes = 1
    else:
        raise Unsupported(NO_MEMORY if "mem" in value else NO_SITE)


def _gpu(made: Translation, value: str) -> None:
    for part in value.split(":"):
        name, _, text = part.partition("=")
        if name == "num":
            made.resources.gpus_per_node = count(text, "-gpu num")
        elif part not in ("j_exclusive=yes", "mode=exclusive_process"):
            made.refused.append(f"-gpu {part}: {NO_SITE}")


OPTIONS = Table(
    {
        "-nnodes": _number("nodes"),
        "-n": _number("tasks"),
        "-W": _limit,
        "-J": _name,
        "-o -oo": _path("--output"),
        "-e -eo": _path("--error"),
        "-i": _path("--input"),
        "-q": word("--queue"),
        "-P": word("--bank"),
        "-cwd": word("--cwd"),
        "-R": _requirement,
        "-gpu": _gpu,
        "-w": refused(NO_DEPENDENCIES),
        "-M": refused(NO_MEMORY),
        "-u": refused(NO_MAIL),
        "-L": refused("the shell is that of the script's first line"),
        **dict.fromkeys(
            ("-m", "-c", "-sp", "-G", "-U", "-b", "-t", "-env", "-alloc_flags", "-core_isolation"), refused(NO_SITE)
        ),
    },
    {
        "-x": lambda made, value: setattr(made.resources, "exclusive", True),
        "-B": refused(NO_MAIL),
        "-N": refused(NO_MAIL),
    },
)


def translate(words: tuple[str, ...], made: Translation) -> None:
    """Translate the options of one line. Raises InvalidInput."""
    OPTIONS.apply(words, made)
