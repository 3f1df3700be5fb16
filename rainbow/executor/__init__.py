"""Python functions on clusters: a `concurrent.futures.Executor` over the client.

In: functions and arguments, pickled by cloudpickle into the files of a job. Out: futures, with the result or the
exception of the function. Users call `rainbow.Executor`; `run` is what runs on the cluster.
"""

from rainbow.executor.calls import FunctionFailed
from rainbow.executor.executor import Executor

__all__ = ["Executor", "FunctionFailed"]
