"""Runs jobs as processes on this machine, as the agent's user: by explicit choice only (``agent.executor: local``).

For the embedded default, tests, and machines without Flux. Each job is run by a small program of its own (`runner`)
in a folder of its own, so that the agent may be killed at any instant: jobs go on, and a restarted agent (or a
second one on the same state folder) reads from the folders what happened to them.

What a job gets: the environment of its jobspec and nothing of the agent's, over a minimal one (`PATH`, `HOME`, `USER`,
`LANG`, `RAINBOW_JOB_ID`, `RAINBOW_ATTEMPT`, and `FLUX_TASK_RANK`, `FLUX_JOB_SIZE` as under Flux); its `cwd`, which must
exist, else a scratch folder; standard input from /dev/null. Nodes, cores and GPUs of the registered graph are counted,
so that jobs queue as they would there; they are not reserved on the machine.

Options: `output_bytes` kept of each stream (102400), `kill_after` seconds from SIGTERM to SIGKILL (5), `max_tasks` of
a job (256), `path`, `keep_s` seconds an ended job's folder is kept (3600).

While its disk is full the executor is down: it takes no jobs and starts none, and running jobs go on.
"""

from rainbow_agents.executors.local.executor import LocalExecutor

__all__ = ["LocalExecutor"]
