"""What images need, from documents, OCI image layouts and a registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oci import INDEX, LayoutWriter, document, registry
from rainbow.artifacts import ImageFacts, Statement, needs_of, resolve
from rainbow.artifacts.reference import parse
from rainbow.errors import InvalidInput, RainbowError, Unavailable, UnknownPlugin

NAME = "ghcr.io/rse-ops/lammps-matrix:openmpi-ubuntu-gpu-22.04"
#: As compspec writes it for that image (metadata shortened).
PUBLISHED = document(
    org_supercontainers={
        "hardware.gpu.available": "yes",
        "mpi.implementation": "OpenMPI",
        "mpi.version": "4.1.2",
        "os.name": "Ubuntu 22.04.3 LTS",
        "os.vendor": "ubuntu",
    },
    io_archspec={"cpu.target": "amd64", "cpu.vendor": "GenuineIntel"},
)
NEEDS = {"hardware.gpu.available": "yes", "mpi.implementation": "OpenMPI", "mpi.version": "4.1.2"}


@pytest.fixture
def layout(tmp_path: Path) -> LayoutWriter:
    return LayoutWriter(tmp_path / "images" / "rse-ops" / "lammps-matrix")


def find(path: Path, image: str = NAME, **options: Any) -> ImageFacts | None:
    return resolve(image, [("layout", {"path": str(path), **options})])


def told(facts: ImageFacts | None) -> dict[str, str]:
    """Attributes with their values."""
    assert facts is not None
    return {s.attribute: s.value for s in facts.statements}


# -- names ------------------------------------------------------------------------------------------------


def test_names_of_images() -> None:
    digest = f"sha256:{'ab' * 32}"
    assert (parse("debian").host, parse("debian").path, parse("debian").wanted) == (None, "debian", "latest")
    assert parse("localhost:5000/a/b:1").name == "localhost:5000/a/b"
    assert parse(f"docker://ghcr.io/org/app:1@{digest}").wanted == digest
    assert parse("org/app").host is None


@pytest.mark.parametrize("name", ["", "../etc", "a/../b", "A B", "x@sha256:1", "ghcr.io/Org/app", "a" * 600, "/x"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidInput, match="no name of an image"):
        parse(name)


# -- a document ---------------------------------------------------------------------------------------------


def test_a_published_document(tmp_path: Path) -> None:
    file = tmp_path / "ghcr.io-rse-ops-lammps-matrix-openmpi-ubuntu-gpu-22.04.json"
    file.write_text(json.dumps(PUBLISHED))
    by_name = resolve(NAME, [("folder", {"path": str(tmp_path)})])
    assert by_name == resolve(str(file), [])
    assert by_name is not None
    needs = needs_of(by_name)
    assert {i["attribute"]: i["value"] for i in needs if "weight" not in i} == {**NEEDS, "cpu.target": "amd64"}
    assert {i["attribute"] for i in needs if "weight" in i} == {"os.name", "os.vendor", "cpu.vendor"}
    assert resolve("ghcr.io/other:1", [("folder", {"path": str(tmp_path)})]) is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"nonsense", "is not JSON"),
        (b"[]", "no list of compatibilities"),
        (b'{"compatibilities": [1]}', "no mapping of attributes"),
        (b'{"compatibilities": [{"attributes": {"a": [1]}}]}', "must be text or a number"),
        (b"[" * 100_000, "is not JSON"),
        (b" " * ((1 << 20) + 1), "too many"),
    ],
)
def test_a_document_that_is_none(tmp_path: Path, content: bytes, why: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=why):
        resolve(str(tmp_path / "x.json"), [])


def test_what_is_a_need_is_a_matter_of_policy() -> None:
    rows = [("os.full", "rocky8"), ("hardware.gpu.available", "no"), ("mpi.version", ">=4"), ("x.y", "1")]
    facts = ImageFacts("x", tuple(Statement(a, v, "artifact") for a, v in rows))
    kinds = {i["attribute"]: i for i in needs_of(facts, {"os.*": "need", "x.*": "ignore", "mpi.*": 2.5})}
    assert kinds == {
        "os.full": {"attribute": "os.full", "value": "rocky8"},
        "hardware.gpu.available": {"attribute": "hardware.gpu.available", "value": "no", "weight": 1.0},
        "mpi.version": {"attribute": "mpi.version", "value": ">=4", "weight": 2.5},
    }


# -- layouts --------------------------------------------------------------------------------------------------


def test_an_artifact_that_refers_to_the_image(layout: LayoutWriter, tmp_path: Path) -> None:
    image = layout.image()
    layout.add(image, "openmpi-ubuntu-gpu-22.04")
    layout.add(layout.image("arm64"), "other")
    layout.add(layout.artifact(image, PUBLISHED))
    assert NEEDS.items() <= told(find(tmp_path / "images")).items()
    assert told(find(layout.folder)) == told(find(tmp_path / "images"))
    assert told(find(tmp_path / "images", f"{parse(NAME).name}@{image['digest']}")) == told(find(layout.folder))
    assert told(find(layout.folder, NAME.replace("openmpi-ubuntu-gpu-22.04", "other"))) == {"cpu.target": "arm64"}
    assert find(layout.folder, NAME + "x") is None
    assert find(tmp_path, NAME) is None


def test_a_tag_beside_and_a_fallback_tag(layout: LayoutWriter) -> None:
    image = layout.image()
    layout.add(image, "a")
    layout.add(layout.artifact(None, document(org_supercontainers={"mpi.version": "4"})), "a-compspec")
    assert told(find(layout.folder, "ghcr.io/x:a"))["mpi.version"] == "4"
    row = layout.artifact(image, document(org_supercontainers={"kernel.version": ">=5.4"}))
    fallback = layout.blob({"schemaVersion": 2, "mediaType": INDEX, "manifests": [row]}, INDEX)
    layout.add(fallback, image["digest"].replace(":", "-"))
    assert told(find(layout.folder, "ghcr.io/x:a"))["kernel.version"] == ">=5.4"


def test_annotations_come_after_artifacts_and_the_platform_last(layout: LayoutWriter) -> None:
    notes = {"org.supercontainers.mpi.version": "3", "io.archspec.cpu.target": "zen3", "org.other.x": "1"}
    image = layout.image(annotations=notes)
    layout.add(image, "a")
    layout.add(layout.artifact(image, document({"cpu.model": "EPYC"}, org_supercontainers={"mpi.version": ">=4"})))
    facts = find(layout.folder, "ghcr.io/x:a")
    assert facts is not None
    assert needs_of(facts) == [
        {"attribute": "mpi.version", "value": ">=4"},
        {"attribute": "cpu.target", "value": "zen3"},
        {"attribute": "cpu.model", "value": "EPYC", "weight": 1.0},
    ]


def test_the_platform_alone_is_a_need_where_a_node_says_it(layout: LayoutWriter) -> None:
    layout.add(layout.image("arm64"), "a")
    facts = find(layout.folder, "ghcr.io/x:a")
    assert facts is not None
    assert needs_of(facts) == [{"attribute": "cpu.target", "value": "arm64", "if_known": True}]


def test_several_platforms(layout: LayoutWriter) -> None:
    one, two = layout.image("amd64"), layout.image("arm64")
    both = layout.index(("amd64", one), ("arm64", two))
    layout.add(both, "a")
    layout.add(layout.artifact(both, document(org_supercontainers={"mpi.version": ">=4"})))
    assert told(find(layout.folder, "ghcr.io/x:a")) == {"mpi.version": ">=4", "cpu.target": "amd64 | arm64"}
    layout.add(layout.artifact(two, document(org_supercontainers={"cpu.features": "sve"})))
    with pytest.raises(
        InvalidInput, match=r"differ by platform .linux/amd64, linux/arm64.: set compatibility\.platform"
    ):
        find(layout.folder, "ghcr.io/x:a")
    chosen = told(find(layout.folder, "ghcr.io/x:a", platform="linux/arm64"))
    assert chosen == {"mpi.version": ">=4", "cpu.features": "sve", "cpu.target": "arm64"}
    with pytest.raises(InvalidInput, match="no image for platform linux/s390x"):
        find(layout.folder, "ghcr.io/x:a", platform="linux/s390x")


def test_what_was_changed_on_disk_is_refused(layout: LayoutWriter) -> None:
    image = layout.image()
    layout.add(image, "a")
    artifact = layout.artifact(image, document(org_supercontainers={"mpi.version": "4"}))
    layout.add(artifact)
    manifest = json.loads((layout.folder / "blobs" / "sha256" / artifact["digest"][7:]).read_bytes())
    (layout.folder / "blobs" / "sha256" / manifest["layers"][0]["digest"][7:]).write_text('{"compatibilities": []}')
    with pytest.raises(InvalidInput, match="not what its digest says"):
        find(layout.folder, "ghcr.io/x:a")


@pytest.mark.parametrize("digest", ["sha256:../../secret", "md5:00", "", None])
def test_a_digest_is_never_a_path(layout: LayoutWriter, digest: Any) -> None:
    layout.add({"mediaType": "x", "digest": digest, "size": 1}, "a")
    with pytest.raises(InvalidInput, match="is no digest"):
        find(layout.folder, "ghcr.io/x:a")


def test_a_subject_must_be_named_by_the_artifact_itself(layout: LayoutWriter) -> None:
    """A registry that lists an artifact for an image it is not about changes nothing."""
    image, other = layout.image(), layout.image("arm64")
    layout.add(image, "a")
    row = layout.artifact(other, document(org_supercontainers={"mpi.version": "4"}))
    layout.add(layout.blob({"schemaVersion": 2, "manifests": [row]}, INDEX), image["digest"].replace(":", "-"))
    assert told(find(layout.folder, "ghcr.io/x:a")) == {"cpu.target": "amd64"}


# -- a registry -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("token", "referrers"), [(False, True), (True, True), (True, False)])
def test_a_registry(layout: LayoutWriter, token: bool, referrers: bool) -> None:
    image = layout.image()
    layout.add(image, "22.04")
    layout.add(layout.artifact(image, PUBLISHED), None if referrers else "22.04-compspec")
    with registry(layout, "rse-ops/lammps", token=token, referrers=referrers) as host:
        source = [("registry", {"hosts": [host], "plain_http": [host]})]
        assert NEEDS.items() <= told(resolve(f"{host}/rse-ops/lammps:22.04", source)).items()
        assert resolve(f"{host}/rse-ops/lammps:nothing", source) is None
        assert resolve("localhost:1/rse-ops/lammps:22.04", source) is None, "only registries that are named are asked"


def test_a_registry_that_is_not_there() -> None:
    source = [("registry", {"hosts": ["127.0.0.1:1"], "plain_http": ["127.0.0.1:1"]})]
    with pytest.raises(Unavailable, match=r"registry http://127\.0\.0\.1:1"):
        resolve("127.0.0.1:1/a:1", source)


def test_wrong_options() -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("layout", {}),
        ("folder", {"path": 3}),
        ("registry", {"hosts": "ghcr.io"}),
        ("registry", {"hosts": ["ghcr.io"], "timeout": 0}),
    ]
    for source in wrong:
        with pytest.raises(InvalidInput):
            resolve("ghcr.io/a:1", [source])
    with pytest.raises(UnknownPlugin):
        resolve("ghcr.io/a:1", [("nowhere", {})])
    assert issubclass(UnknownPlugin, RainbowError)
