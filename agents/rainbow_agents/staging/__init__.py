"""Files of jobs, around any executor: what a job needs is there before it starts, what it leaves before it has ended.

In come an executor and the settings `staging`; out comes an executor with the same contract. Used by the factory.
"""

from rainbow_agents.staging.executor import StagingExecutor
from rainbow_agents.staging.plan import name_of

__all__ = ["StagingExecutor", "name_of"]
