"""Pictures of resources and of jobs: what a terminal shows, and that the SVG is well-formed and says the same."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from rainbow.models.job import JobRecord
from rainbow.pictures import timeline, tree
from rainbow.resources.graph.outline import outline
from rainbow.resources.graph.shape import Shape, make

_SVG = "{http://www.w3.org/2000/svg}"


def machine() -> Shape:
    core, gpu, memory = make("core", 1, ""), make("gpu", 1, ""), make("memory", 64, "GB")
    socket = make("socket", 1, "", ((core, 18), (memory, 1)))
    return make("cluster", 1, "", ((make("node", 1, "", ((socket, 2), (gpu, 4))), 3), (make("<odd>", 1, ""), 1)))


def test_the_tree_in_a_terminal() -> None:
    assert sorted(tree.lines(outline(machine()))) == sorted(
        [
            "cluster",
            "├─ 3 × node",
            "│  ├─ 2 × socket",
            "│  │  ├─ 18 × core",
            "│  │  └─ memory of 64 GB",
            "│  └─ 4 × gpu",
            "└─ <odd>",
        ]
    )


def test_the_tree_as_a_picture_says_the_same() -> None:
    picture = ET.fromstring(tree.document(outline(machine()), 'blue "one"'))
    said = [element.text for element in picture.iter(f"{_SVG}text")]
    assert said == [row.text for row in tree.rows(outline(machine()))]
    label = picture.get("aria-label") or ""
    assert label.startswith('Resources of blue "one": cluster; ')
    boxes = [element.get("class") for element in picture.iter(f"{_SVG}rect")]
    assert boxes.count("node") == 1
    assert "other" in boxes


def test_an_outline_is_bounded() -> None:
    kinds = tuple((make("node", size, ""), 1) for size in range(2, 500))
    found = outline(make("cluster", 1, "", kinds), most=50)
    assert len(found["children"]) == 49
    assert found["more"] == 449
    assert tree.lines(found)[-1] == "└─ ... 449 more"


def job(name: str, **times: float) -> JobRecord:
    state = "completed" if "ended" in times else "running"
    return JobRecord(id=f"id-{name}", name=name, state=state, cluster="blue", times=times)


JOBS = [
    job("<late>", submitted=150.0, running=160.0),
    job("second", submitted=100.0, running=120.0, ended=140.0),
    job("first", submitted=100.0, running=110.0, ended=130.0),
    job("before", submitted=1.0, running=2.0, ended=3.0),
]


def test_jobs_lie_in_rows_that_do_not_overlap() -> None:
    [lane] = timeline.lanes(JOBS, 100.0, 200.0)
    assert lane.rows == 2
    assert [(bar.id, bar.row) for bar in lane.bars] == [("id-first", 0), ("id-second", 1), ("id-<late>", 0)]
    assert [(bar.wait_x, bar.x, bar.width) for bar in lane.bars] == [(0, 100, 200), (0, 200, 200), (500, 600, 400)]


def test_the_timeline_in_a_terminal() -> None:
    shown = timeline.lines(timeline.lanes(JOBS, 100.0, 200.0), 20)
    assert shown == ["blue (3 jobs)", "|··████    ··▒▒▒▒▒▒▒▒|", "|····████            |"]
    assert timeline.lines(timeline.lanes(JOBS, 100.0, 200.0), 20, most=1)[-1] == "... 1 more rows"
    assert timeline.lines([], 20) == []


def test_the_page_of_the_timeline_needs_nothing_beside_it() -> None:
    text = timeline.page(timeline.lanes(JOBS, 100.0, 200.0), 100.0, 200.0)
    assert "<late>" not in text
    assert "&lt;late&gt;: running, waited 10.0 s" in text
    for word in ("href", "src=", "<script", "@import", "url("):
        assert word not in text
    assert "1970-01-01 00:01:40Z to 1970-01-01 00:03:20Z" in text
