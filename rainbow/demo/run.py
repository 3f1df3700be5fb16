"""Running the demo: an instance of its own, jobs in, outcomes out. Shows nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rainbow.client import Client
from rainbow.demo.clusters import GUEST, MEMBER, plans
from rainbow.demo.jobs import Outcome, check, jobs
from rainbow.demo.sharing import JOBS, Turn, share
from rainbow.embedded.instance import Instance
from rainbow.security.tokens import KeyRing, issue
from rainbow.settings import load

_WAIT_S = 60.0


def run(data_dir: Path, say: Callable[[str], None]) -> tuple[list[Outcome], list[Turn]]:
    """Start three clusters in `data_dir`, run the jobs, stop. `say` gets a line before each stage."""
    instance = Instance(data_dir)
    agents = plans(instance.data_dir / "graphs")
    instance.prepare(agents)
    say("starting the embedded server, the scheduler and three agents")
    instance.start(agents)
    try:
        settings = load(instance.config, {})
        ring = KeyRing.load(settings.keyring)
        with ExitStack() as stack:
            clients = {
                user: stack.enter_context(
                    Client(settings=settings, token=issue(ring, sub=user, role="submit", ttl=3600.0))
                )
                for user in (MEMBER, GUEST)
            }
            shown = jobs()
            say(f"submitting {len(shown)} jobs")
            submitted = [(s, clients[s.user].submit(**s.job)) for s in shown]
            for _, job in submitted:
                job.wait(_WAIT_S)
            # What is pushed to those who wait has no history: the record itself does.
            records = [(s, job.status()) for s, job in submitted]
            say(f"submitting {' and '.join(f'{n} jobs of user {user}' for user, n in JOBS.items())} at once")
            turns = share(clients)
        instance.check()
        return [Outcome(s, record, check(s, record)) for s, record in records], turns
    finally:
        say("stopping")
        instance.stop()
