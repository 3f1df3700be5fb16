"""One call of a function as a job: packed into a jobspec, and its outcome read from the job's output."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import pickle
import re
import secrets
import sys
import sysconfig
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from rainbow.client import JobFields
from rainbow.errors import InvalidInput, Refused
from rainbow.jobspec.dialects.simple import simple

MAX_RESULT = 65_536
"""Bytes of a compressed result: what a cluster keeps of a job's output, with room for the encoding."""

_RUN = Path(__file__).with_name("run.py")
_RESULT = re.compile(r"^rainbow-result ([0-9a-f]{64}) ([A-Za-z0-9+/=]+|\*)$", re.MULTILINE)
_PROBLEM = re.compile(r"^rainbow-problem (.*)$", re.MULTILINE)


class FunctionFailed(Refused):
    """A function had no outcome: its job was refused, cancelled or killed, or its Python cannot run it."""

    code = "function-failed"


class Resources(TypedDict, total=False):
    """What one call needs. `cores` and `gpus` on one node; several `nodes` are an instance of Flux around the call."""

    nodes: int
    cores: int
    gpus: int
    duration: float | int | str


@dataclass(frozen=True, slots=True)
class Call:
    """A packed call: the jobspec that runs it, the key that signs its outcome, and its file if that is not in there."""

    jobspec: dict[str, Any]
    key: str
    file: str | None = None

    def fields(self, folder: Path) -> JobFields:
        """What is submitted; a file is written into `folder`."""
        if self.file is None:
            return {"jobspec": self.jobspec}
        (folder / self.key).write_text(self.file)
        return {"jobspec": self.jobspec, "stage_in": [f"{folder / self.key}:call"], "stage_out": ["rainbow-result"]}


def pack(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
    resources: Mapping[str, Any],
    python: str,
    environment: Mapping[str, str] | None,
    staged: bool = False,
) -> Call:
    """The job that calls `function` in the program `python` of a cluster; `staged`: with files of any size.

    Raises:
        InvalidInput: cloudpickle is missing, the function or an argument cannot be pickled, no function at all, unknown
            resources.
    """
    if not callable(function):
        raise InvalidInput(f"{function!r:.80} cannot be called: give a function and its arguments")
    if unknown := sorted(resources.keys() - Resources.__annotations__.keys()):
        raise InvalidInput(f"no resource {unknown[0]!r}: write nodes, cores, gpus or duration")
    data = _pickled(function, arguments, named)
    nodes, cores, gpus = (resources.get(key) for key in ("nodes", "cores", "gpus"))
    command = [python, "{{tmpdir}}/script", "call" if staged else "{{tmpdir}}/call"]
    document = simple(
        command if nodes is None else ["flux", "broker", *command],
        nodes=nodes,
        tasks=nodes if cores or gpus else None,
        cores_per_task=cores or 1,
        gpus_per_task=gpus or 0,
        duration=resources.get("duration"),
        name=_name(function),
        environment=environment,
    )
    key = secrets.token_hex(16)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    text = base64.b64encode(data).decode()
    call = json.dumps({"python": here, "key": key, "limit": MAX_RESULT, "staged": staged, "data": text})
    system = document["attributes"]["system"]
    system["files"] = {"script": {"mode": 0o100600, "encoding": "utf-8", "data": _RUN.read_text()}}
    if not staged:
        system["files"]["call"] = {"mode": 0o100600, "encoding": "utf-8", "data": call}
    options: dict[str, Any] = {"output": {"limit": str(4 * MAX_RESULT)}}
    if nodes is not None:
        options |= {"per-resource": {"type": "node"}, "mpi": "none", "exit-timeout": "none"}
    system["shell"] = {"options": options}
    return Call(document, key, call if staged else None)


def outcome(text: str, key: str, staged: bytes | None = None) -> tuple[bool, Any, str] | None:
    """What a job wrote: (True, result, "") or (False, exception, its traceback); None if there is nothing of it.

    Args:
        text: Its output.
        key: The key of the call.
        staged: A large result.

    Raises:
        FunctionFailed: the outcome is not of this call, or says why there is none.
    """
    if (found := _RESULT.search(text)) is not None:
        data = staged if found[2] == "*" and staged is not None else base64.b64decode(found[2])
        if not hmac.compare_digest(hmac.new(key.encode(), data, hashlib.sha256).hexdigest(), found[1]):
            raise FunctionFailed("the result is not signed by the job that was sent")
        try:
            good, value, trace = pickle.loads(zlib.decompress(data))  # noqa: S301 - signed by the job that was sent
        except Exception as exc:
            raise FunctionFailed(f"the result cannot be loaded here: {type(exc).__name__}: {exc}") from None
        return good, value, trace
    if (problem := _PROBLEM.search(text)) is not None:
        raise FunctionFailed(problem[1])
    return None


def _pickled(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bytes:
    """The call by value: also what its function's own module defines, unless that module is installed."""
    try:
        import cloudpickle
    except ImportError:
        raise InvalidInput("cloudpickle is missing: pip install 'rainbow-hpc[python]'") from None
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    installed = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    here = module if file is not None and not file.startswith(installed) else None
    try:
        if here is not None:
            cloudpickle.register_pickle_by_value(here)
        pickled: bytes = cloudpickle.dumps((function, arguments, dict(named)))
    except Exception as exc:
        raise InvalidInput(f"{_name(function)} cannot be pickled: {exc}") from None
    finally:
        if here is not None:
            cloudpickle.unregister_pickle_by_value(here)
    return pickled


def _name(function: Callable[..., Any]) -> str:
    return re.sub(r"[^\w.-]", "", getattr(function, "__qualname__", type(function).__name__)) or "function"
