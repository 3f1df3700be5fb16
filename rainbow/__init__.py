"""rainbow: one place to submit work, many clusters to run it.

The names in `__all__` are the public interface. Each is loaded on first use, so that ``rainbow --help`` pays for
neither pika nor pydantic.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rainbow.client import Cancelled as Cancelled
    from rainbow.client import Client as Client
    from rainbow.client import ClusterView as ClusterView
    from rainbow.client import EnrollmentView as EnrollmentView
    from rainbow.client import Job as Job
    from rainbow.client import JobFields as JobFields
    from rainbow.client import Registration as Registration
    from rainbow.errors import Conflict as Conflict
    from rainbow.errors import Denied as Denied
    from rainbow.errors import InvalidInput as InvalidInput
    from rainbow.errors import NotFound as NotFound
    from rainbow.errors import RainbowError as RainbowError
    from rainbow.errors import TimedOut as TimedOut
    from rainbow.errors import Unavailable as Unavailable
    from rainbow.executor import Executor as Executor
    from rainbow.executor import FunctionFailed as FunctionFailed
    from rainbow.models.job import Answer as Answer
    from rainbow.models.job import JobRecord as JobRecord
    from rainbow.models.job import State as JobState
    from rainbow.models.requests import Output as Output

_WHERE = {
    "Answer": "models.job:Answer",
    "Cancelled": "client:Cancelled",
    "Client": "client:Client",
    "ClusterView": "client:ClusterView",
    "Conflict": "errors:Conflict",
    "Denied": "errors:Denied",
    "EnrollmentView": "client:EnrollmentView",
    "Executor": "executor:Executor",
    "FunctionFailed": "executor:FunctionFailed",
    "InvalidInput": "errors:InvalidInput",
    "Job": "client:Job",
    "JobFields": "client:JobFields",
    "JobRecord": "models.job:JobRecord",
    "JobState": "models.job:State",
    "NotFound": "errors:NotFound",
    "Output": "models.requests:Output",
    "RainbowError": "errors:RainbowError",
    "Registration": "client:Registration",
    "TimedOut": "errors:TimedOut",
    "Unavailable": "errors:Unavailable",
}

__all__ = [
    "Answer",
    "Cancelled",
    "Client",
    "ClusterView",
    "Conflict",
    "Denied",
    "EnrollmentView",
    "Executor",
    "FunctionFailed",
    "InvalidInput",
    "Job",
    "JobFields",
    "JobRecord",
    "JobState",
    "NotFound",
    "Output",
    "RainbowError",
    "Registration",
    "TimedOut",
    "Unavailable",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, _, attribute = _WHERE[name].partition(":")
        return getattr(import_module(f"rainbow.{module}"), attribute)
    if name == "__version__":
        from importlib.metadata import version

        return version("rainbow-hpc")
    raise AttributeError(f"module 'rainbow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
