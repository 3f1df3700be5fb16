"""Translation to V1: what comes out, what is refused, and that the script of a group does its work."""

from __future__ import annotations

import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import read
from rainbow.jobspec.flux.v1 import FluxJob, V1Translator


def translate(given: Any) -> list[FluxJob]:
    jobs = V1Translator().translate(read(given))
    for job in jobs:
        assert read(job.document, dialect="V1").duration is not None
    return jobs


def refusal(given: Any) -> str:
    with pytest.raises(InvalidJobspec) as caught:
        translate(given)
    return str(caught.value)


def canonical(resources: list[Any], version: int = 1, **task: Any) -> dict[str, Any]:
    return {
        "version": version,
        "resources": resources,
        "tasks": [{"command": ["a"], "slot": "s", "count": {"per_slot": 1}, **task}],
        "attributes": {"system": {"duration": 5, "environment": {"A": "1", "B": "2"}}, "user": {"x": 1}},
    }


def slot(*inside: Any, count: Any = 1) -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": "s", "with": list(inside)}


def test_v1_goes_through_and_gets_a_duration() -> None:
    document = canonical([slot({"type": "core", "count": 1})])
    before = copy.deepcopy(document)
    (job,) = translate(document)
    assert job.document == document
    del document["attributes"]["system"]
    (job,) = translate(document)
    assert job.document["attributes"] == {"system": {"duration": 0}, "user": {"x": 1}}
    assert "system" not in document["attributes"]
    assert before["attributes"]["system"]["duration"] == 5


CORE = {"type": "core", "count": 2}
GPU = {"type": "gpu", "count": 1}


@pytest.mark.parametrize(
    ("resources", "nodes", "slots", "cores", "gpus", "exclusive"),
    [
        ([slot({"type": "core", "count": {"min": 3}}, count="4,9")], None, 4, 3, 0, None),
        ([{"type": "cluster", "count": 1, "with": [slot(CORE, GPU, count=2)]}], None, 2, 2, 1, None),
        ([slot({"type": "node", "count": 1}, count=4)], 4, 1, 1, 0, True),
        ([slot({"type": "node", "count": 1, "with": [CORE, GPU]}, count=3)], 3, 1, 2, 1, True),
        ([slot({"type": "node", "count": 1, "with": [slot(CORE, count=5)]}, count=3)], 3, 5, 2, 0, True),
        ([{"type": "node", "count": {"min": 2}, "exclusive": True, "with": [slot(CORE)]}], 2, 1, 2, 0, True),
        ([slot(GPU, count=2)], None, 2, 1, 1, None),
    ],
)
def test_canonical_that_v1_can_say(
    resources: list[Any], nodes: int | None, slots: int, cores: int, gpus: int, exclusive: bool | None
) -> None:
    (job,) = translate(canonical(resources, version=9999))
    inside = [{"type": "core", "count": cores}, *([{"type": "gpu", "count": gpus}] if gpus else [])]
    expected: dict[str, Any] = {"type": "slot", "count": slots, "label": "s", "with": inside}
    if nodes is not None:
        expected = {"type": "node", "count": nodes, "with": [expected]}
    if exclusive:
        expected["exclusive"] = True
    assert job.document["version"] == 1
    assert job.document["resources"] == [expected]


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ([{"type": "rack", "count": 1, "with": [slot(CORE)]}], "'rack'"),
        ([slot({"type": "socket", "count": 1, "with": [CORE]})], "'socket'"),
        ([slot(CORE, {"type": "memory", "count": 4})], "'memory'"),
        ([{"type": "cluster", "count": 2, "with": [slot(CORE)]}], "'cluster'"),
        ([slot(CORE), slot(CORE)], "side by side"),
        ([slot({"type": "node", "count": 2})], "slot of 2 nodes"),
        ([slot(slot(CORE))], "slot in a slot"),
        ([{"type": "xor_slot", "count": 1, "label": "s", "with": [CORE]}], "alternatives"),
        ([slot({"type": "core", "count": 1, "with": [{"type": "pu", "count": 1}]})], "pu inside core"),
        ([{"type": "node", "count": 1, "with": [{"type": "node", "count": 1}]}], "node inside a node"),
    ],
)
def test_canonical_that_v1_cannot_say(resources: list[Any], words: str) -> None:
    assert words in refusal(canonical(resources, version=9999))


def test_task_counts() -> None:
    resources = [{"type": "node", "count": 3, "with": [slot(CORE, count=2)]}]

    def count(**given: Any) -> Any:
        (job,) = translate(canonical(resources, version=9999, count=given))
        return job.document["tasks"][0]["count"], job.document["attributes"]["system"].get("shell")

    assert count(total=4) == ({"total": 4}, None)
    assert count(per_slot=2) == ({"total": 12}, None)
    per_core = {"options": {"per-resource": {"type": "core", "count": 2}}}
    assert count(per_resource={"type": "core", "count": 2}) == ({"per_slot": 1}, per_core)
    assert "per socket" in refusal(canonical(resources, 9999, count={"per_resource": {"type": "socket", "count": 1}}))


def test_settings_of_the_task_become_those_of_the_job() -> None:
    attributes = {"environment": {"A": None, "C": "3"}}
    (job,) = translate(canonical([slot(CORE)], attributes=attributes))
    assert job.document["attributes"]["system"]["environment"] == {"B": "2", "C": "3"}
    assert "distribution" in refusal(canonical([slot(CORE)], distribution="x"))
    assert "attribute y" in refusal(canonical([slot(CORE)], attributes={"y": "x"}))
    two = canonical([slot(CORE)], version=9999)
    two["tasks"] *= 2
    assert "exactly one task" in refusal(two)


# -- nextgen -------------------------------------------------------------------------------------

TASKS = """
version: 1
name: flow
attributes: {cwd: /all, environment: {A: all, B: all}, queue: q}
resources:
  n: {type: node, count: 2, with: [{type: core, count: 4}], attributes: {duration: 60, environment: {B: n}}}
  r: {type: core, replicas: 3, count: 2}
tasks:
- {name: last, command: [c], resources: r, depends_on: [first, flow-2], attributes: {duration: 10m}}
- {command: "a 'b c'", resources: n|r, replicas: 2, attributes: {environment: {A: mine, N: 1}, image: i}}
- {name: first, command: [a], resources: n}
"""


def test_tasks_become_jobs_in_order() -> None:
    jobs = translate(TASKS)
    assert [(job.name, job.depends_on) for job in jobs] == [
        ("flow-2-1", ()),
        ("flow-2-2", ()),
        ("first", ()),
        ("last", ("first", "flow-2-1", "flow-2-2")),
    ]
    copy_, _, first, last = (job.document for job in jobs)
    assert copy_["tasks"] == [{"command": ["a", "b c"], "slot": "task", "count": {"per_slot": 1}}]
    assert copy_["attributes"] == {
        "system": {
            "duration": 60,
            "job": {"name": "flow-2-1"},
            "cwd": "/all",
            "environment": {"A": "mine", "B": "n", "N": "1"},
            "queue": "q",
        },
        "user": {"rainbow": {"image": "i"}},
    }
    assert first["resources"][0]["count"] == 2
    assert first["resources"][0]["with"][0]["with"] == [{"type": "core", "count": 4}]
    assert last["resources"][0] == {"type": "slot", "count": 3, "label": "task", "with": [CORE]}
    assert last["attributes"]["system"]["duration"] == 600


def test_dependencies_are_filled_in_when_ids_are_known() -> None:
    last = translate(TASKS)[-1]
    ready = last.ready({"first": "f1", "flow-2-1": "f2", "flow-2-2": "f3", "other": "f4"})
    assert [one["value"] for one in ready["attributes"]["system"]["dependencies"]] == ["f1", "f2", "f3"]
    assert {one["scheme"] for one in ready["attributes"]["system"]["dependencies"]} == {"afterok"}
    assert read(ready, dialect="V1").dialect == "V1"
    assert "dependencies" not in last.document["attributes"]["system"]
    with pytest.raises(KeyError):
        last.ready({})
    first = translate(TASKS)[0]
    assert first.ready({}) is first.document


def test_resources_that_go_without_saying() -> None:
    (job,) = translate("{version: 1, tasks: [{command: x}]}")
    assert job.name == "task-1"
    assert job.document["resources"] == [slot({"type": "core", "count": 1}) | {"label": "task"}]
    (job,) = translate("{version: 1, name: me, resources: {a: {type: node, replicas: 1}}, task: {command: x}}")
    assert job.name == "me"
    assert (job.document["resources"][0]["type"], job.document["resources"][0]["exclusive"]) == ("node", True)
    (job,) = translate("{version: 1, resources: {a: {type: gpu, count: 2}}, tasks: [{command: x}]}")
    assert job.document["resources"][0]["with"] == [{"type": "core", "count": 1}, {"type": "gpu", "count": 2}]


def test_wishes_are_dropped() -> None:
    wish = "{name: io, field: t, match: x}"
    text = f"{{version: 1, resources: {{a: {{type: node, count: 1, requires: [{wish}]}}}}, tasks: [{{command: x}}]}}"
    assert "requires" not in str(translate(text)[0].document)


TWO = "version: 1\nresources: {a: {type: node, count: 1}, b: {type: node, count: 2}}\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", "nothing to run"),
        ("tasks: [{command: x}]", "say which"),
        ("tasks: [{command: x, resources: 'a&b'}]", "several resources"),
        ("tasks: [{steps: [x], resources: a}]", "steps"),
        ("tasks: [{command: x, resources: a, local: true}]", "put it into a group"),
        ("tasks: [{command: x, resources: a, depends_on: nobody}]", "'nobody'"),
        (
            "tasks:\n- {name: p, command: x, resources: a, depends_on: q}\n- {name: q, command: x, depends_on: p}",
            "waits for itself",
        ),
        ("tasks: [{name: p, command: x, resources: a}, {name: p, command: x, resources: a}]", "two tasks"),
        ("tasks: [{name: p, command: x, resources: a, replicas: 2}, {name: p-1, command: x, resources: a}]", "rename"),
        ("tasks: [{command: x, resources: a, replicas: 1001}]", "more than 1000"),
        ("tasks: [{command: x, resources: a, attributes: {duration: soon}}]", "soon"),
        ("tasks: [{command: x, resources: a, attributes: {environment: {A: [1]}}}]", "environment.A"),
        ("tasks: [{command: x, resources: a, attributes: {environment: [A]}}]", "environment"),
        ("tasks: [{command: x, resources: a, attributes: {cwd: 7}}]", "cwd"),
        ("tasks: [{command: x, resources: a, attributes: {tasks: 0}}]", "tasks"),
        ("groups: [{name: g, resources: a}]", "no tasks"),
        ("groups: [{name: g, resources: a, tasks: [{group: g}]}]", "nothing starts it"),
        ("tasks: [{group: g}]\ngroups: [{name: g, resources: a, tasks: [{group: g}]}]", "contains itself"),
        ("groups: [{name: g, resources: a, tasks: [{command: x}]}, {name: g, resources: a}]", "two groups"),
        ("groups: [{name: g, resources: a, tasks: [{command: x, depends_on: g}]}]", "part of"),
        ("groups: [{name: g, resources: a, tasks: [{command: x}], groups: [{name: h}]}]", "nothing starts it"),
        ("groups: [{name: g, resources: a, tasks: [{command: x, local: true, replicas: 2}]}]", "replicas"),
        ("groups: [{name: g, resources: a, tasks: [{command: x, attributes: {image: i}}]}]", "image"),
        ("groups: [{name: g, resources: a, tasks: [{command: x, depends_on: nobody}]}]", "'nobody'"),
        (
            "groups: [{name: g, resources: a, tasks: [{group: h, replicas: 2}]}, {name: h, tasks: [{command: x}]}]",
            "replicas",
        ),
    ],
)
def test_nextgen_that_cannot_be_carried_out(body: str, words: str) -> None:
    assert words in refusal(TWO + body)


def test_groups_that_start_each_other_many_times_are_stopped() -> None:
    groups = [
        f"- {{name: g{n}, resources: a, tasks: [{{name: x, group: g{n + 1}}}, {{name: y, group: g{n + 1}}}]}}"
        for n in range(30)
    ]
    groups.append("- {name: g30, resources: a, tasks: [{command: x}]}")
    assert "more than 1000 groups" in refusal(TWO + "groups:\n" + "\n".join(groups))


# -- groups --------------------------------------------------------------------------------------

FAKE_FLUX = """#!/bin/sh
# Notes each call; submit and batch answer with ids, and batch runs its script at once.
printf '%s|' "$@" >>"$LOG"; echo >>"$LOG"
case "$1" in
submit)
    copies=1
    for word in "$@"; do case "$word" in --cc=1-*) copies=${word#--cc=1-};; esac; done
    while [ "$copies" -gt 0 ]; do
        n=$(cat "$COUNT"); n=$((n + 1)); echo "$n" >"$COUNT"
        echo "f$n"; copies=$((copies - 1))
    done;;
batch)
    for word in "$@"; do script=$word; done
    echo "[ $B" >>"$LOG"; sh "$script" >/dev/null; echo "]" >>"$LOG"
    echo fB;;
job) [ "${FAIL:-}" != "$3" ] || exit 3;;
esac
"""

GROUP = """
version: 1
resources:
  big: {type: node, count: 4, with: [{type: core, count: 8}, {type: gpu, count: 2}]}
  one: {type: node, count: 1}
groups:
- name: outer
  resources: big
  attributes: {duration: 3600, environment: {A: "x y"}}
  tasks:
  - local: true
    name: start
    command: echo "it$Q s $((1 + 1))" >>$LOG
    attributes: {environment: {Q: "'"}, cwd: /}
  - name: train
    depends_on: [start]
    replicas: 3
    resources: one
    command: [bash, -c, "echo 'hi' $HOME"]
    attributes: {duration: 90, environment: {B: "it's"}, cwd: /a b}
  - {name: all, command: [hostname], depends_on: [inner, before]}
  - {group: inner, depends_on: train, attributes: {environment: {B: b}}}
  - {local: true, depends_on: [all], command: [sh, -c, 'echo stop >>$LOG']}
- name: inner
  resources: one
  tasks:
  - {command: [cat, "END_OF_GROUP"], attributes: {tasks: 1}}
tasks:
- {name: before, command: make all, resources: one}
- {group: outer}
"""


def group_script() -> str:
    jobs = translate(GROUP)
    assert [(job.name, job.depends_on) for job in jobs] == [("before", ()), ("outer", ("before",))]
    document = jobs[1].document
    assert document["resources"][0]["count"] == 4
    assert document["tasks"] == [
        {"command": ["flux", "broker", "{{tmpdir}}/script"], "slot": "task", "count": {"per_slot": 1}}
    ]
    system = document["attributes"]["system"]
    assert (system["duration"], system["environment"]) == (3600, {"A": "x y"})
    assert system["shell"]["options"]["per-resource"] == {"type": "node"}
    assert system["files"]["script"]["mode"] == 0o100700
    return str(system["files"]["script"]["data"])


def run_script(folder: Path, script: str, **environment: str) -> tuple[int, list[str]]:
    (folder / "flux").write_text(FAKE_FLUX)
    (folder / "flux").chmod(0o700)
    (folder / "count").write_text("0\n")
    log = folder / "log"
    log.write_text("")
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": f"{folder}:/usr/bin:/bin", "LOG": str(log), "COUNT": str(folder / "count"), "TMPDIR": str(folder)}
        | environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    assert sorted(path.name for path in folder.iterdir()) == ["count", "flux", "log"]
    return done.returncode, log.read_text().splitlines()


def test_script_of_a_group(tmp_path: Path) -> None:
    code, log = run_script(tmp_path, group_script())
    assert code == 0
    assert log == [
        "it' s 2",
        "submit|-N1|-n1|-c1|--exclusive|--job-name=train|-t90s|--cwd=/a b|--cc=1-3|--|bash|-c|echo 'hi' $HOME|",
        log[2],
        "[ b",
        "submit|-N1|-n1|-c1|--exclusive|--job-name=task-1|--|cat|END_OF_GROUP|",
        "job|status|f4|",
        "]",
        "submit|-N4|-n4|-c8|-g2|--job-name=all|--dependency=afterok:fB|--|hostname|",
        "job|status|f5|",
        "stop",
        "job|status|f1|f2|f3|fB|f5|",
    ]
    assert log[2].startswith(
        "batch|-N1|-n1|-c1|--exclusive|--job-name=inner"
        "|--dependency=afterok:f1|--dependency=afterok:f2|--dependency=afterok:f3|/"
    )


def test_script_ends_with_the_result_of_its_jobs(tmp_path: Path) -> None:
    code, log = run_script(tmp_path, group_script(), FAIL="f5")
    assert code == 3
    assert "stop" not in log
    assert log[-1] == "job|status|f5|"


def test_nested_groups_need_no_task_to_name_them_at_the_top() -> None:
    text = TWO + "groups: [{name: g, resources: b, tasks: [{group: h}], groups: [{name: h, tasks: [{command: x}]}]}]"
    (job,) = translate(text)
    assert job.name == "g"
    assert (
        "flux batch -N2 -n2 -c1 --exclusive --job-name=h"
        in job.document["attributes"]["system"]["files"]["script"]["data"]
    )


# -- the older list form -------------------------------------------------------------------------


def test_older_list_form() -> None:
    text = """
version: 1
resources: [{type: node, count: 2, with: [{type: slot, count: 1, label: x, with: [{type: core, count: 2}]}]}]
tasks:
- {name: b, slot: x, command: [run], count: {per_slot: 2}, depends_on: a, resources: {io: {match: [{type: shm}]}}}
- {name: a, slot: x, script: "#!/bin/sh\\necho hi\\n", count: {total: 2}, resources: {}}
attributes: {duration: 30, cwd: /x}
"""
    first, second = translate(text)
    assert (first.name, second.name, second.depends_on) == ("a", "b", ("a",))
    assert first.document["tasks"][0]["command"] == ["{{tmpdir}}/script"]
    assert first.document["attributes"]["system"]["files"]["script"]["data"] == "#!/bin/sh\necho hi\n"
    assert second.document["tasks"][0] == {"command": ["run"], "slot": "task", "count": {"total": 4}}
    assert second.document["attributes"]["system"] == {"duration": 30, "cwd": "/x", "job": {"name": "b"}}
    assert "transform" in refusal(text.replace("script:", "transform:"))
    assert "'zz'" in refusal(text.replace("depends_on: a", "depends_on: zz"))
    assert "one name" in refusal(text.replace("name: b", "name: a"))
