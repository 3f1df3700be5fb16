"""Plain technical English: signs of the private dialect that this project once was written in stay out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SIGNS: dict[str, str] = {
    r"\banew\b": "again, or a new one",
    r"\bfor ever\b": "without limit, or permanently",
    r"\bwhoever\b": "the client, the sender",
    r"\bnobody\b": "no client, no agent, nothing",
    r"\bwhat came of\b": "the result of",
    r"\b(?:a|without a|by its|last) words?\b(?! (?:of (?:the|a) \w+|in its))": "a reason, a state",
    r"\btells\b": "reports, returns, says what to whom",
    r"(?:\"\"\"|^\s*|\. )Gives\b": "Returns",
    r"\bsay so\b|\bsaid so\b": "what is said",
    r"\bthe first rainbow\b": "rainbow v1",
}

#: Files that still have signs. The list only gets shorter: a file without any must leave it.
EXEMPT: frozenset[str] = frozenset(
    {
        "agents/rainbow_agents/check.py",
        "agents/rainbow_agents/commands.py",
        "agents/rainbow_agents/executors/base.py",
        "agents/rainbow_agents/executors/flux/preparation.py",
        "agents/rainbow_agents/executors/local/runner.py",
        "agents/rainbow_agents/health.py",
        "agents/rainbow_agents/intake/finalizer.py",
        "agents/rainbow_agents/intake/in_flight.py",
        "agents/rainbow_agents/intake/receiver.py",
        "agents/rainbow_agents/intake/validation.py",
        "agents/rainbow_agents/journal/outbox.py",
        "agents/rainbow_agents/parts.py",
        "agents/rainbow_agents/registration/client.py",
        "agents/rainbow_agents/registration/enrollment.py",
        "agents/rainbow_agents/registration/request_worker.py",
        "agents/rainbow_agents/reporting/follower.py",
        "agents/rainbow_agents/reporting/reconciliation.py",
        "agents/rainbow_agents/threads.py",
        "docs/explanation/outages.md",
        "docs/explanation/security.md",
        "docs/how-to/coming-from-the-first-rainbow.md",
        "docs/how-to/let-clusters-bid.md",
        "docs/how-to/register-a-cluster.md",
        "docs/reference/cli.md",
        "docs/reference/python.md",
        "docs/tutorial/first-steps.md",
        "docs/tutorial/put-your-flux-on-rainbow.md",
        "rainbow/brokers/rabbitmq/endpoints.py",
        "rainbow/brokers/rabbitmq/incoming.py",
        "rainbow/brokers/rabbitmq/link.py",
        "rainbow/brokers/rabbitmq/loop.py",
        "rainbow/brokers/rabbitmq/wire.py",
        "rainbow/cli/commands/broker.py",
        "rainbow/cli/commands/checks.py",
        "rainbow/cli/commands/config.py",
        "rainbow/cli/commands/enroll.py",
        "rainbow/cli/commands/receive.py",
        "rainbow/cli/commands/tokens.py",
        "rainbow/cli/commands/top.py",
        "rainbow/client/client.py",
        "rainbow/client/clusters.py",
        "rainbow/client/credentials.py",
        "rainbow/client/dead_letters.py",
        "rainbow/client/job.py",
        "rainbow/client/mailbox.py",
        "rainbow/client/rpc.py",
        "rainbow/client/views.py",
        "rainbow/client/watching.py",
        "rainbow/embedded/server.py",
        "rainbow/paths.py",
        "rainbow/settings.py",
        "rainbow/web/feeds.py",
        "workers/rainbow_workers/bidding/bidder.py",
        "workers/rainbow_workers/cli.py",
        "workers/rainbow_workers/clusters/cache.py",
        "workers/rainbow_workers/clusters/circuit_breaker.py",
        "workers/rainbow_workers/commands.py",
        "workers/rainbow_workers/keys.py",
        "workers/rainbow_workers/registry/operations/access.py",
        "workers/rainbow_workers/registry/operations/relaying.py",
        "workers/rainbow_workers/registry/registrar.py",
        "workers/rainbow_workers/scheduling/answers.py",
        "workers/rainbow_workers/scheduling/failover.py",
        "workers/rainbow_workers/scheduling/publishing.py",
        "workers/rainbow_workers/service.py",
        "workers/rainbow_workers/stores/base.py",
        "workers/rainbow_workers/stores/redis/clusters.py",
        "workers/rainbow_workers/stores/redis/enrollments.py",
        "workers/rainbow_workers/stores/redis/placement.py",
        "workers/rainbow_workers/worker.py",
    }
)


def files() -> Iterator[Path]:
    for folder in ("rainbow", "workers", "agents", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".md", ".lua") and path != Path(__file__).resolve():
                yield path
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile"))


def found(text: str) -> list[str]:
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()!r} (write: {better})"
        for sign, better in SIGNS.items()
        for match in re.finditer(sign, text, re.IGNORECASE | re.MULTILINE)
    ]


ALL = {path.relative_to(ROOT).as_posix(): found(path.read_text()) for path in files()}


@pytest.mark.parametrize("text", ["It is read anew.", "Nobody answers", "    Gives the names", "a word of warning"])
def test_signs_are_found(text: str) -> None:
    assert found(text)


def test_no_signs_outside_the_list() -> None:
    assert len(ALL) > 300
    wrong = {name: signs for name, signs in ALL.items() if signs and name not in EXEMPT}
    assert not wrong, "\n".join(f"{name}: {'; '.join(signs)}" for name, signs in wrong.items())


def test_the_list_only_gets_shorter() -> None:
    assert sorted(name for name in EXEMPT if not ALL.get(name)) == []
