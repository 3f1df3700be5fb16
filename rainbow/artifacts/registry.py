"""`registry`: an OCI registry, over HTTPS, without credentials (an anonymous token is fetched where it asks for one).

Option `hosts` lists the registries that may be asked: the name of an image never makes this program call another one.
Those in `plain_http` are asked over HTTP, for tests and private networks. `timeout` is in seconds; `platform` as for
`layout`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rainbow.artifacts.base import ImageFacts
from rainbow.artifacts.oci import INDEXES, MANIFESTS, MAX_MANIFEST, Descriptor, Image
from rainbow.artifacts.reference import Reference, parse
from rainbow.errors import InvalidInput, Unavailable

_ACCEPT = ", ".join((*INDEXES, *MANIFESTS))
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')
_MAX_TOKEN = 64 << 10


class Registry:
    """The registries in `hosts`, by the OCI distribution API."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = sorted(set(options) - {"hosts", "plain_http", "timeout", "platform"})
        hosts, plain = options.get("hosts"), options.get("plain_http", [])
        if unknown or not _names(hosts) or not hosts or not _names(plain):
            raise InvalidInput("artifacts registry takes hosts, a list of names, plain_http, timeout and platform")
        timeout = options.get("timeout", 10.0)
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 300:
            raise InvalidInput("artifacts registry: timeout must be seconds, up to 300")
        self._hosts, self._plain, self._timeout = frozenset(hosts), frozenset(plain), float(timeout)
        self._platform = options.get("platform")

    def find(self, image: str) -> ImageFacts | None:
        reference = parse(image)
        if reference.host not in self._hosts:
            return None
        scheme = "http" if reference.host in self._plain else "https"
        blobs = _Remote(f"{scheme}://{reference.host}", reference, self._timeout)
        return Image(blobs, f"{reference.name}:{reference.wanted}", self._platform).facts(reference.wanted)


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


class _Redirects(HTTPRedirectHandler):
    """Registries send blobs from elsewhere: a token is for the registry alone, and HTTPS stays HTTPS."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        before, after = urlsplit(req.full_url), urlsplit(newurl)
        if after.scheme != "https" and (after.scheme != before.scheme or after.netloc != before.netloc):
            raise HTTPError(req.full_url, code, f"a redirect to {after.scheme}", headers, fp)
        made = super().redirect_request(req, fp, code, msg, headers, newurl)
        if made is not None and after.netloc != before.netloc:
            made.remove_header("Authorization")
        return made


class _Remote:
    """One repository of a registry, as `oci.Blobs`."""

    def __init__(self, base: str, reference: Reference, timeout: float) -> None:
        self._base, self._path, self._timeout = base, reference.path, timeout
        self._open = build_opener(_Redirects)
        self._token: str | None = None
        self._manifests: dict[str, bytes] = {}

    def tagged(self, tag: str) -> Descriptor | None:
        data = self._get(f"manifests/{tag}", MAX_MANIFEST)
        if data is None:
            return None
        digest = tag if ":" in tag else f"sha256:{hashlib.sha256(data).hexdigest()}"
        self._manifests[digest] = data
        return {"digest": digest, "mediaType": MANIFESTS[0], "size": len(data)}

    def referrers(self, digest: str) -> Sequence[Descriptor]:
        data = self._get(f"referrers/{digest}", MAX_MANIFEST)
        try:
            rows = json.loads(data)["manifests"] if data is not None else []
        except (ValueError, KeyError, TypeError, RecursionError):
            return []
        return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []

    def read(self, descriptor: Descriptor, most: int) -> bytes:
        digest = str(descriptor.get("digest"))
        if _DIGEST.fullmatch(digest) is None:
            raise InvalidInput(f"{self._path}: {digest[:80]!r} is no digest")
        if digest in self._manifests:
            return self._manifests[digest]
        kind = "manifests" if descriptor.get("mediaType") in (*MANIFESTS, *INDEXES) else "blobs"
        data = self._get(f"{kind}/{digest}", most)
        if data is None:
            raise InvalidInput(f"{self._base}: {self._path} has no {digest[:19]}")
        return data

    def _get(self, what: str, most: int) -> bytes | None:
        """What a path of the repository has; None where it has nothing. Raises Unavailable, InvalidInput."""
        url = f"{self._base}/v2/{self._path}/{what}"
        for attempt in (1, 2):
            headers = {"Accept": _ACCEPT} | ({"Authorization": f"Bearer {self._token}"} if self._token else {})
            try:
                return self._read(Request(url, headers=headers), most)  # noqa: S310 - http only by setting
            except HTTPError as exc:
                challenge = exc.headers.get("www-authenticate", "") if exc.headers else ""
                if exc.code == 401 and attempt == 1 and challenge.lower().startswith("bearer "):
                    self._token = self._anonymous(challenge)
                    continue
                if exc.code in (404, 400, 405, 406):
                    return None  # not there, or a registry without that endpoint
                raise Unavailable(f"registry {self._base} answers {exc.code} for {self._path}") from None
            except (URLError, OSError) as exc:
                raise Unavailable(f"registry {self._base}: {getattr(exc, 'reason', exc)}") from None
        raise Unavailable(f"registry {self._base} wants more than an anonymous token for {self._path}")

    def _anonymous(self, challenge: str) -> str:
        """A token for anybody, from where the registry says."""
        said = dict(_CHALLENGE.findall(challenge))
        realm = said.pop("realm", "")
        if not realm.startswith("https://") and urlsplit(realm).netloc != urlsplit(self._base).netloc:
            raise Unavailable(f"registry {self._base} wants a token from {realm[:80]!r}, which is not HTTPS")
        query = urlencode({key: said[key] for key in ("service", "scope") if key in said})
        try:
            document = json.loads(self._read(Request(f"{realm}?{query}"), _MAX_TOKEN))  # noqa: S310
            token = document.get("token") or document.get("access_token")
        except (HTTPError, URLError, OSError, ValueError, AttributeError, RecursionError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable():
            raise Unavailable(f"registry {self._base} gives no token to anybody for {self._path}")
        return token

    def _read(self, request: Request, most: int) -> bytes:
        with self._open.open(request, timeout=self._timeout) as answer:
            data: bytes = answer.read(most + 1)
        if len(data) > most:
            raise InvalidInput(f"{request.full_url[:120]} has more than {most} bytes")
        return data
