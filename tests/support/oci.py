"""OCI image layouts, written from scratch as the image specification has them, and a registry that serves them."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
COMPSPEC = "application/org.supercontainers.compspec"


def document(prefer: Mapping[str, str] | None = None, **namespaces: Mapping[str, Any]) -> dict[str, Any]:
    """A compspec document; ``org_supercontainers={…}`` is the vocabulary ``org.supercontainers``."""
    rows = [{"name": n.replace("_", "."), "version": "0.0.0", "attributes": dict(a)} for n, a in namespaces.items()]
    if prefer:
        rows.append({"name": "rainbow.prefer", "version": "0.0.0", "attributes": dict(prefer)})
    return {"version": "0.0.0", "kind": "CompatibilitySpec", "metadata": {"name": "test"}, "compatibilities": rows}


class LayoutWriter:
    """Writes blobs, manifests and the index of one layout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "blobs" / "sha256").mkdir(parents=True)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        self.rows: list[dict[str, Any]] = []
        self._write()

    def blob(self, content: bytes | Mapping[str, Any], kind: str, **more: Any) -> dict[str, Any]:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self.folder / "blobs" / "sha256" / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data), **more}

    def image(self, architecture: str = "amd64", annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
        """An image of one layer, not in the index yet."""
        config = self.blob({"architecture": architecture, "os": "linux", "rootfs": {"type": "layers"}}, CONFIG)
        layer = self.blob(b"layer " + architecture.encode(), "application/vnd.oci.image.layer.v1.tar")
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
        return self.blob({**manifest, **({"annotations": dict(annotations)} if annotations else {})}, MANIFEST)

    def index(self, *images: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """An image of several platforms."""
        rows = [{**row, "platform": {"os": "linux", "architecture": name}} for name, row in images]
        return self.blob({"schemaVersion": 2, "mediaType": INDEX, "manifests": rows}, INDEX)

    def artifact(self, of: Mapping[str, Any] | None, content: Mapping[str, Any] | bytes) -> dict[str, Any]:
        """A compatibility artifact that refers to an image, as `oras attach` makes it."""
        layer = self.blob(content, COMPSPEC)
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "artifactType": COMPSPEC,
            "config": self.blob(b"{}", EMPTY),
            "layers": [layer],
        }
        if of is not None:
            manifest["subject"] = {key: of[key] for key in ("mediaType", "digest", "size")}
        return self.blob(manifest, MANIFEST, artifactType=COMPSPEC)

    def add(self, descriptor: Mapping[str, Any], tag: str | None = None) -> None:
        row = dict(descriptor)
        if tag is not None:
            row["annotations"] = {**row.get("annotations", {}), "org.opencontainers.image.ref.name": tag}
        self.rows.append(row)
        self._write()

    def _write(self) -> None:
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.rows}
        (self.folder / "index.json").write_text(json.dumps(index))


@contextmanager
def registry(layout: LayoutWriter, name: str, *, token: bool = False, referrers: bool = True) -> Iterator[str]:
    """Serves a layout by the OCI distribution API, as repository `name`. Gives its ``HOST:PORT``.

    Args:
        layout: What it has.
        name: The repository.
        token: An anonymous bearer token is asked for.
        referrers: It has the referrers API.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            if path == "/token":
                assert f"repository%3A{name.replace('/', '%2F')}%3Apull" in query
                return self._answer(200, json.dumps({"token": "anybody"}).encode())
            if token and self.headers.get("Authorization") != "Bearer anybody":
                realm = f"http://{self.headers['Host']}/token"
                scope = f'Bearer realm="{realm}",service="test",scope="repository:{name}:pull"'
                return self._answer(401, b"{}", {"WWW-Authenticate": scope})
            if not path.startswith(f"/v2/{name}/"):
                return self._answer(404, b"{}")
            kind, _, wanted = path.removeprefix(f"/v2/{name}/").partition("/")
            if kind == "referrers":
                rows = [r for r in layout.rows if r.get("artifactType")]
                return self._answer(200, json.dumps({"manifests": rows}).encode()) if referrers else self._answer(404)
            if kind == "manifests" and ":" not in wanted:
                tags = {r.get("annotations", {}).get("org.opencontainers.image.ref.name"): r for r in layout.rows}
                wanted = str(tags.get(wanted, {}).get("digest"))
            file = layout.folder / "blobs" / "sha256" / wanted.removeprefix("sha256:")
            return self._answer(200, file.read_bytes()) if file.is_file() else self._answer(404)

        def _answer(self, code: int, body: bytes = b"{}", headers: Mapping[str, str] | None = None) -> None:
            self.send_response(code)
            for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
