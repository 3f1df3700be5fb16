"""`rainbow web` with a certificate of its own: encrypted, verified, and its cookie never sent in the clear."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import pytest

from processes import Site
from rig import eventually
from security.certificates import Authority
from servers import free_ports


@pytest.mark.timeout(300)
def test_the_console_over_https(tmp_path: Path, amqp_url: str, redis_url: str, redis_prefix: str) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("good")
    [port] = free_ports(1)
    url = f"https://localhost:{port}"
    with Site(tmp_path, amqp_url, redis_url, redis_prefix, web={"cert": str(cert), "key": str(key)}) as site:
        site.scheduler("registrar", name="registrar")
        site.start("web", "rainbow.cli", "web", "--listen", f"127.0.0.1:{port}")
        trusted = ssl.create_default_context(cafile=str(authority.ca))
        with httpx.Client(base_url=url, verify=trusted, timeout=60) as client:

            def signed_in() -> httpx.Response | None:
                try:
                    answer = client.post("/login", data={"token": site.token("alice")})
                except httpx.TransportError:
                    return None
                return answer if answer.status_code == 303 else None

            cookie = eventually(signed_in, 120, every=0.5).headers["set-cookie"].lower()
            assert "; secure" in cookie
            assert "; httponly" in cookie
            assert client.get("/").status_code == 200
        with pytest.raises(httpx.ConnectError, match=r"(?i)certificate"):
            httpx.get(f"{url}/healthz", timeout=30)
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{port}/healthz", timeout=30)
        alone = site.write("alone", {**site.shared, "web": {"cert": str(cert)}})
        done = site.cli("web", "--listen", f"127.0.0.1:{free_ports(1)[0]}", config=alone, code=2)
        assert "web.cert and web.key go together" in done.stderr
