"""Going past Flux's validator changes no answer: what was refused is, in the same words, and a site's own are asked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fluxrig import make_flux
from rainbow.jobspec.flux.v1 import FluxJob
from rainbow_agents.executors.base import Held, Work
from rainbow_agents.executors.testing import Rig

#: FLUX_JOB_NOVALIDATE, as the event `submit` shows it.
PAST = 8

SITE = """
[queues.batch]
[queues.debug]
[policy.jobspec.defaults.system]
queue = "batch"
[policy.limits]
duration = "1h"
[policy.limits.job-size.max]
ncores = 6
"""

FORBIDS = """
from flux.job.validator import ValidatorPlugin

class Validator(ValidatorPlugin):
    def validate(self, job):
        if job.jobspec["attributes"]["system"]["job"]["name"] == "forbidden":
            return 1, "the site forbids it"
"""

FORBIDS_IN_COMMANDS = """
from flux.cli.plugin import CLIPlugin

class Forbids(CLIPlugin):
    def validate(self, jobspec):
        if jobspec.attributes["system"]["job"]["name"] == "forbidden":
            raise ValueError("the site forbids it")
"""

Change = Callable[[dict[str, Any]], object]


def _system(**fields: Any) -> Change:
    return lambda spec: spec["attributes"]["system"].update(fields)


def _slot(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["resources"][0]
    return found


REFUSED: dict[str, tuple[Change, str]] = {
    "no version": (lambda spec: spec.pop("version"), "bad-spec"),
    "version 2": (lambda spec: spec.update(version=2), "bad-spec"),
    "a key too many": (lambda spec: spec.update(more={}), "bad-spec"),
    "no tasks": (lambda spec: spec.pop("tasks"), "bad-spec"),
    "no command": (lambda spec: spec["tasks"][0].update(command=[]), "bad-spec"),
    "a command that is no list": (lambda spec: spec["tasks"][0].update(command="true"), "bad-spec"),
    "no count of tasks": (lambda spec: spec["tasks"][0].update(count={}), "bad-spec"),
    "tasks by resource": (lambda spec: spec["tasks"][0].update(count={"per_resource": {}}), "bad-spec"),
    "a slot without a label": (lambda spec: _slot(spec).pop("label"), "bad-spec"),
    "an attribute too many": (lambda spec: spec["attributes"].update(site={}), "bad-spec"),
    "a limit in words": (_system(duration="an hour"), "bad-spec"),
    "dependencies that are none": (_system(dependencies="nonsense"), "bad-spec"),
    "a dependency without a scheme": (_system(dependencies=[{"value": "1"}]), "bad-spec"),
    "a host that is not there": (_system(constraints={"hostlist": ["no-such-host"]}), ""),
    "an operator that is not there": (_system(constraints={"nand": []}), ""),
    "a queue that is not there": (_system(queue="nope"), "bad-spec"),
    "a limit over the site's": (_system(duration=7200), "policy"),
    "more cores than the site lets one have": (lambda spec: _slot(spec).update(count=7), "policy"),
    "more cores than there are": (lambda spec: _slot(spec).update(count=1000), "no-fit"),
}


@pytest.fixture
def make(flux_bindings: None, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(kind: str = "flux", **options: Any) -> Rig:
        made.append(make_flux(kind, tmp_path / str(len(made)), f"{len(made):016x}", **options))
        return made[-1]

    yield make
    for rig in made:
        rig.executor.close()


def flags(instance: Any, held: Held) -> int:
    submit = json.loads(instance.command("job", "eventlog", "--format=json", held.handle).splitlines()[0])
    found: int = submit["context"]["flags"]
    return found


def goes_past(rig: Rig, instance: Any) -> bool:
    """Whether a job goes past the validator, some having been validated by it before."""
    held = [rig.submit(rig.work("true", duration=60.0)) for _ in range(3)]
    found = flags(instance, held[-1])
    rig.executor.cancel(held, "seen")
    for one in held:
        rig.wait_for("Ended", one.mark)
    return found == PAST


def outcome(rig: Rig, change: Change) -> Any:
    plain = rig.work("true", duration=60.0)
    document = json.loads(json.dumps(plain.units[0].document))
    change(document)
    work = Work(plain.mark, (FluxJob("job", document),), plain.demand)
    rig.executor.submit([work])

    def look() -> Any:
        kinds = ("Submitted", "Refused", "Undecided")
        told = (h for h in rig.told if type(h).__name__ in kinds and getattr(h, "mark", None) == work.mark)
        return next(told, None)

    return rig.until(look, "an outcome")


def forbidden(rig: Rig) -> Any:
    return outcome(rig, _system(job={"name": "forbidden"}))


def test_refused_as_before(own_instance: Any, make: Callable[..., Rig]) -> None:
    instance = own_instance(config=SITE)
    asking, knowing = make(validate=True), make()
    assert not goes_past(asking, instance)
    assert goes_past(knowing, instance)
    for name, (change, code) in REFUSED.items():
        before, now = outcome(asking, change), outcome(knowing, change)
        assert type(before).__name__ == type(now).__name__ == "Refused", name
        assert (now.code, now.detail) == (before.code, before.detail), name
        assert now.detail
        assert not code or now.code == code, (name, now)


def test_defaults_of_queues_are_applied_all_the_same(own_instance: Any, make: Callable[..., Rig]) -> None:
    instance = own_instance(config=SITE)
    rig = make()
    assert goes_past(rig, instance)
    held = rig.submit(rig.work("true", duration=60.0))
    assert flags(instance, held) == PAST
    spec = json.loads(instance.command("job", "info", held.handle, "jobspec"))
    assert spec["attributes"]["system"]["queue"] == "batch"


def test_the_program_goes_past_too(own_instance: Any, make: Callable[..., Rig]) -> None:
    instance = own_instance()
    assert goes_past(make("flux-cli"), instance)
    assert not goes_past(make("flux-cli", validate=True), instance)


def test_a_job_with_constraints_is_validated_by_flux(own_instance: Any, make: Callable[..., Rig]) -> None:
    instance = own_instance()
    rig = make()
    assert goes_past(rig, instance)
    told = outcome(rig, _system(constraints={"ranks": ["0"]}))
    assert flags(instance, Held(told.mark, told.handle)) == 0


def test_a_site_s_validator_is_asked(own_instance: Any, make: Callable[..., Rig], tmp_path: Path) -> None:
    (tmp_path / "forbids.py").write_text(FORBIDS)
    instance = own_instance(config=f'[ingest.validator]\nplugins = ["jobspec", "{tmp_path}/forbids.py"]')
    rig = make()
    assert not goes_past(rig, instance)
    told = forbidden(rig)
    assert (told.code, told.detail) == ("bad-spec", "the site forbids it")


def test_a_site_s_validator_is_asked_from_when_it_is_configured(
    own_instance: Any, make: Callable[..., Rig], tmp_path: Path
) -> None:
    (tmp_path / "forbids.py").write_text(FORBIDS)
    instance = own_instance()
    rig = make()
    assert goes_past(rig, instance)
    assert type(forbidden(rig)).__name__ == "Submitted"
    config = instance.folder / "config.toml"
    plain = config.read_text()
    config.write_text(f'{plain}\n[ingest.validator]\nplugins = ["jobspec", "{tmp_path}/forbids.py"]\n')
    instance.command("config", "reload")
    rig.until(lambda: not goes_past(rig, instance), "the change being seen")
    assert forbidden(rig).detail == "the site forbids it"
    config.write_text(plain)
    instance.command("config", "reload")
    rig.until(lambda: goes_past(rig, instance), "the change being seen")


def test_a_validator_given_to_the_module_is_asked(own_instance: Any, make: Callable[..., Rig], tmp_path: Path) -> None:
    (tmp_path / "forbids.py").write_text(FORBIDS)
    instance = own_instance()
    instance.command("module", "reload", "job-ingest", f"validator-plugins=jobspec,{tmp_path}/forbids.py")
    rig = make()
    assert not goes_past(rig, instance)
    assert forbidden(rig).detail == "the site forbids it"


def test_what_a_site_added_to_flux_s_commands_is_asked(
    own_instance: Any, make: Callable[..., Rig], tmp_path: Path
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "forbids.py").write_text(FORBIDS_IN_COMMANDS)
    instance = own_instance(environment={"FLUX_CLI_PLUGINPATH": str(tmp_path / "plugins")})
    rig = make()
    assert not goes_past(rig, instance)
    assert forbidden(rig).detail == "the site forbids it"


def test_another_instance_is_looked_at_anew(own_instance: Any, make: Callable[..., Rig], tmp_path: Path) -> None:
    """The agent goes on; the instance that takes the first one's place has a validator of its own."""
    (tmp_path / "forbids.py").write_text(FORBIDS)
    first = own_instance("first")
    rig = make()
    assert goes_past(rig, first)
    first.stop()
    second = own_instance("second", config=f'[ingest.validator]\nplugins = ["jobspec", "{tmp_path}/forbids.py"]')
    assert os.environ["FLUX_URI"] == second.uri
    rig.until(lambda: [h for h in rig.told if type(h).__name__ == "Up"][1:], "coming up again")
    assert forbidden(rig).detail == "the site forbids it"
    assert not goes_past(rig, second)
