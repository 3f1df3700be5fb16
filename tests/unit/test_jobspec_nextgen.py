"""nextgen in its two forms: named resources, wishes, groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from rainbow.errors import InvalidJobspec
from rainbow.jobspec import Count, Demand, Request, Requirement, Want, detect, read


def want(kind: str, number: int, *children: Want, requires: tuple[Requirement, ...] = ()) -> Want:
    return Want(kind, Count(number, number), children, requires=requires)


def resources_of(text: str) -> tuple[Want, ...]:
    return read(text).request.resources


def refusal(text: Any) -> str:
    with pytest.raises(InvalidJobspec) as caught:
        read(text)
    return str(caught.value)


def test_count_is_plain_and_replicas_a_slot() -> None:
    wants = resources_of("""
version: 1
resources:
  plain: {type: node, count: 2, with: [{type: core, count: 4}]}
  slots: {type: node, replicas: 3, with: {type: gpu, count: 1}}
  both: {type: core, count: 2, replicas: 4}
  old: {type: slot, count: 2, with: [{type: core, count: 1}]}
""")
    assert wants == (
        want("node", 2, want("core", 4)),
        want("slot", 3, want("node", 1, want("gpu", 1))),
        want("slot", 4, want("core", 2)),
        want("slot", 2, want("core", 1)),
    )


def test_demand_name_duration_and_parameters() -> None:
    jobspec = read("""
version: 1
name: mine
resources: {a: {type: node, count: 2, with: [{type: core, count: 4}], attributes: {duration: 300}}}
attributes: {parameter: {seconds_per_gb: 0.4}}
""")
    assert jobspec.dialect == "nextgen"
    assert (jobspec.name, jobspec.duration, jobspec.parameters) == ("mine", 300.0, {"seconds_per_gb": 0.4})
    assert jobspec.demand == Demand(nodes=2, cores=8)
    assert read("{version: 1, attributes: {duration: 5}}").duration == 5.0


def test_only_what_is_scheduled_is_asked_for() -> None:
    text = """
version: 1
resources:
  a: {type: node, count: 1, schedule: true}
  b: {type: node, count: 2}
"""
    assert resources_of(text) == (want("node", 1),)
    assert resources_of(text.replace("true", "false")) == (want("node", 1), want("node", 2))


def test_what_serves_inside_a_group_is_not_asked_for_besides() -> None:
    text = """
version: 1
resources:
  all: {type: node, count: 8}
  part: {type: node, count: 2}
  inner: {type: node, count: 3}
  idle: {type: node, count: 4}
groups:
- name: outer
  resources: all
  tasks: [{group: nested}, {command: x, resources: part}]
- {name: nested, resources: inner, tasks: [{command: y}]}
"""
    assert [w.count.min for w in resources_of(text)] == [8, 4]
    assert [w.count.min for w in resources_of(text + "tasks: [{command: z, resources: part}]")] == [8, 2, 4]
    assert [w.count.min for w in resources_of(text + "tasks: [{group: nested}]")] == [8, 3, 4]


def test_tasks_without_any_resources_ask_for_a_core() -> None:
    assert resources_of("{version: 1, tasks: [{command: x}]}") == (want("slot", 1, want("core", 1)),)
    assert resources_of("{version: 1, name: empty}") == ()


MATCH = Requirement("io", "type", "match", (("match", "shm"),))
IOR = Requirement("s", "name", "match", (("match", "ior"),))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("{name: io, field: type, match: shm}", [MATCH]),
        ("{name: io, field: type, value: shm}", [MATCH]),
        ("{name: io, attribute: type, value: shm}", [MATCH]),
        (
            "{name: s, field: type, match: package, attribute: name, value: ior}",
            [
                Requirement("s", "type", "match", (("match", "package"),)),
                IOR,
            ],
        ),
        (
            "{name: s, field: name, match: ior, attribute: version, min: 3.3}",
            [replace(IOR, also=(Requirement("s", "version", "range", (("min", "3.3"),)),))],
        ),
        ("{name: s, field: v, min: '1', max: 2}", [Requirement("s", "v", "range", (("max", "2"), ("min", "1")))]),
        ("{name: s, field: v, max: '2', min: ''}", [Requirement("s", "v", "range", (("max", "2"),))]),
        ("{name: s, field: v, match: no}", [Requirement("s", "v", "match", (("match", "false"),))]),
        ("{name: s, field: v, match: 0.5}", [Requirement("s", "v", "match", (("match", "0.5"),))]),
        (
            "{name: s, field: v, algorithm: near, to: 3}",
            [Requirement("s", "v", "near", (("to", "3"),))],
        ),
    ],
)
def test_spellings_of_requires(item: str, expected: list[Requirement]) -> None:
    wants = resources_of(f"{{version: 1, resources: {{a: {{type: node, count: 1, requires: [{item}]}}}}}}")
    assert wants == (want("node", 1, requires=tuple(expected)),)


def test_requires_in_tasks_and_at_the_top_decide_nothing() -> None:
    text = """
version: 1
requires: {sw: [{name: spack, field: type, match: package}]}
resources: {a: {type: node, count: 1}}
tasks: [{command: x, resources: a, requires: sw}]
"""
    assert read(text).request == Request((want("node", 1),))


NODE = "a: {type: node, count: 1}"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("resources: {type: node, count: 1}", "resources.type"),
        ("resources:", "resources"),
        ("resources: {a: {count: 1}}", "resources.a.type"),
        ("resources: {a: {type: node}}", "count or replicas"),
        ("resources: {a: {type: node, count: 0}}", "resources.a.count"),
        ("resources: {a: {type: node, count: '2'}}", "resources.a.count"),
        ("resources: {a: {type: node, replicas: 1.0}}", "resources.a.replicas"),
        ("resources: {a: {type: node, count: 1, with: 4}}", "resources.a.with"),
        ("resources: {a: {type: node, count: 1, with: [{count: 1}]}}", "resources.a.with[0].type"),
        ("resources: {a: {type: node, count: 1, schedule: 1}}", "schedule"),
        ("resources: {a: {type: node, count: 1, requires: {x: {y: z}}}}", "resources.a.requires"),
        ("resources: {a: {type: node, count: 1, requires: [x]}}", "requires[0]"),
        ("resources: {a: {type: node, count: 1, requires: [{field: x, match: y}]}}", "requires[0].name"),
        ("resources: {a: {type: node, count: 1, requires: [{name: x, match: y}]}}", "requires[0].field"),
        ("resources: {a: {type: node, count: 1, requires: [{name: x, field: y}]}}", "nothing to compare"),
        ("resources: {a: {type: node, count: 1, requires: [{name: x, field: y, match: [z]}]}}", "match"),
        ("resources: {a: {type: node, count: 1, attributes: {duration: 300s}}}", "duration"),
        ("resources: {a: {type: slot, count: 1}}", "empty slot"),
        ("attributes: {duration: 300s}", "attributes.duration"),
        ("attributes: {parameter: 1}", "attributes.parameter"),
        ("requires: {x: {y: z}}", "requires.x"),
        ("requires: [x]", "requires"),
        ("tasks: {command: x}", "tasks"),
        ("tasks: [x]", "tasks[0]"),
        ("tasks: [{name: x}]", "nothing to run"),
        ("tasks: [{command: []}]", "tasks[0].command"),
        ("tasks: [{command: [1]}]", "tasks[0].command"),
        ('tasks: [{command: "a \'b"}]', "quotes"),
        ("tasks: [{command: x, resources: {type: node, count: 1}}]", "tasks[0].resources"),
        ("tasks: [{command: x, requires: {y: z}}]", "tasks[0].requires"),
        ("tasks: [{command: x, resources: nowhere}]", "'nowhere'"),
        (f"resources: {{{NODE}}}\ntasks: [{{command: x, resources: a|b}}]", "'b'"),
        (f"resources: {{{NODE}}}\ntasks: [{{command: x, resources: '|'}}]", "names no resource"),
        ("tasks: [{group: nowhere}]", "'nowhere'"),
        ("tasks: [{command: x, replicas: 0}]", "replicas"),
        ("tasks: [{command: x, local: 'yes'}]", "local"),
        ("tasks: [{command: x, depends_on: [1]}]", "depends_on"),
        ("tasks: [{steps: x}]", "steps"),
        ("groups: {}", "groups"),
        ("groups: [{tasks: []}]", "groups[0].name"),
        ("groups: [{name: g, command: x}]", "groups[0].command"),
        ("groups: [{name: g, resources: nowhere}]", "'nowhere'"),
        ("groups: [{name: g, tasks: [{name: x}]}]", "groups[0].tasks[0]"),
        ("groups: [{name: g, groups: [{name: h, tasks: 1}]}]", "groups[0].groups[0].tasks"),
        ("name: [x]", "name"),
    ],
)
def test_refusals_name_the_place(body: str, words: str) -> None:
    assert words in refusal(f"version: 1\n{body}\n")


@pytest.mark.parametrize("version", ["2", "'1'", "1.0", "true", "null", "0"])
def test_version_is_one(version: str) -> None:
    assert "version" in refusal(f"version: {version}\nresources: {{{NODE}}}")
    assert "version" in refusal(f"resources: {{{NODE}}}")


def test_free_keys_are_let_be() -> None:
    text = f"""
version: 1
extra: 1
resources: {{a-b: {{type: node, count: 1, environment: {{x: y}}, more: 1}}, {NODE}}}
tasks:
- {{command: x, resources: a, attributes: {{duration: 900s, watch: true}}, level: 2, depends_on: nobody}}
task: {{command: ignored beside tasks}}
"""
    assert [task.command for task in read(text).tasks] == [("x",)]
    assert [task.command for task in read("{version: 1, task: {command: a b}}").tasks] == [("a", "b")]


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("{resources: [], task: {}}", "nextgen-list"),
        ("{resources: [], tasks: [{resources: {}}], attributes: {system: {}}}", "nextgen-list"),
        ("{resources: [], tasks: [{}]}", "canonical"),
        ("{resources: {}, tasks: [{slot: x}]}", "canonical"),
        ("{resources: {}, tasks: [{count: {per_slot: 1}}]}", "canonical"),
        ("{attributes: {system: {}}}", "canonical"),
        ("{tasks: [{count: 2}]}", "nextgen"),
        ("{tasks: 1, attributes: 2}", "nextgen"),
    ],
)
def test_telling_dialects_apart(text: str, dialect: str) -> None:
    assert detect(yaml.safe_load(text)) == dialect


# -- the older list form -------------------------------------------------------------------------

OLD = """
version: 1
resources:
- {resources}
task:
  command: [ior]
  slot: default
  resources: {wishes}
"""


def old(
    wishes: str,
    resources: str = "{type: node, count: 2, with: [{type: slot, count: 1, with: [{type: core, count: 2}]}]}",
) -> str:
    return OLD.replace("{resources}", resources).replace("{wishes}", wishes)


@pytest.mark.parametrize(
    "wishes", ["{io: {match: [{type: shm}]}}", "{io: {match: [{field: type, value: shm}]}, os: {x: y}, disk: big}"]
)
def test_wishes_are_put_on_the_nodes(wishes: str) -> None:
    jobspec = read(old(wishes))
    assert jobspec.dialect == "nextgen-list"
    assert jobspec.request.resources == (want("node", 2, want("slot", 1, want("core", 2)), requires=(MATCH,)),)


def test_wishes_without_a_node_are_put_above_the_slot_or_in_it() -> None:
    wishes = "{io: {match: [{type: shm}]}}"
    rack = "{type: rack, count: 1, with: [{type: slot, count: 1, with: [{type: core, count: 2}]}]}"
    assert resources_of(old(wishes, rack))[0].requires == (MATCH,)
    bare = "{type: slot, count: 1, with: [{type: core, count: 2}]}"
    assert resources_of(old(wishes, bare)) == (want("slot", 1, want("core", 2, requires=(MATCH,))),)


def test_ranges_parameters_and_settings_of_the_old_form() -> None:
    text = old("{spack: {range: [{field: version, min: 0.5.1, max: 0.5.5}]}}")
    text += "  attributes: {parameter: {x: 1}}\nattributes: {parameter: {y: 2}, duration: 60}\n"
    jobspec = read(text)
    bounds = (("max", "0.5.5"), ("min", "0.5.1"))
    assert jobspec.request.resources[0].requires == (Requirement("spack", "version", "range", bounds),)
    assert (jobspec.parameters, jobspec.duration) == ({"x": 1, "y": 2}, 60.0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (old("[]"), "task.resources"),
        (old("{io: {match: x}}"), "task.resources.io.match"),
        (old("{io: {range: [{field: v}]}}"), "min or max"),
        (old("{io: {match: [{field: v}]}}"), "match"),
        (old("{}").replace("version: 1", "version: 2"), "version"),
        (old("{}", "{type: node}"), "resources[0].count"),
        (old("{}").replace("slot: default", "slot: 1"), "task.slot"),
        (old("{}").replace("slot: default", "count: {per_slot: 0}"), "task.count"),
        (old("{}") + "attributes: 1", "attributes"),
        (old("{}") + "attributes: {parameter: 1}", "attributes.parameter"),
        (old("{}") + "attributes: {system: 1}", "attributes.system"),
        ("{version: 1, resources: [{type: core, count: 1}], task: x}", "task"),
        ("{version: 1, resources: [{type: core, count: 1}], task: {}, tasks: []}", "tasks"),
        ("{version: 1, resources: [], task: {}}", "resources"),
    ],
)
def test_refusals_of_the_old_form(text: str, words: str) -> None:
    assert words in refusal(text)
