"""RabbitMQ's configuration with which it takes our tokens as passwords, from the key ring.

Its OAuth 2 plugin (`rabbitmq_auth_backend_oauth2`, part of RabbitMQ) verifies the same HS256 signatures with the same
keys. Keys of HMAC can only be given in ``advanced.config`` (Erlang terms), also on 4.x, where the rest is written
in today's ``rabbitmq.conf`` form (rabbitmq.com/docs/oauth2).
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Mapping
from typing import Literal

from rainbow.errors import InvalidInput
from rainbow.security.scopes import for_workers
from rainbow.security.tokens import ALGORITHM, AUDIENCE, KeyRing, issue

Form = Literal["3.10", "4.x"]
ADVANCED = "advanced.config"
CONF = "rabbitmq.conf"
#: Reads the keys of an ``advanced.config`` into a node that runs, for `rabbitmqctl eval`: no key is shown in the list
#: of processes, as it would be by `rabbitmqctl add_uaa_key`, and no connection is lost.
RELOAD = (
    '{{ok, [Config]}} = file:consult("{path}"), '
    "{{_, Settings}} = lists:keyfind(rabbitmq_auth_backend_oauth2, 1, Config), "
    "[application:set_env(rabbitmq_auth_backend_oauth2, Name, Value) || {{Name, Value}} <- Settings], ok."
)
_WORKER_TTL = 600.0


def render(ring: KeyRing, form: Form = "3.10") -> Mapping[str, str]:
    """The files by name. `form` says which RabbitMQ: one file for 3.10 (it does for 4.x too), two for 4.x.

    ``advanced.config`` holds the signing keys: mode 0600, for the broker's account only.
    """
    if form == "3.10":
        settings = [
            "{rabbit, [\n    {auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]}\n  ]}",
            _plugin(f'{{resource_server_id, <<"{AUDIENCE}">>}}', _keys(ring)),
        ]
        return {ADVANCED: _advanced(settings)}
    return {ADVANCED: _advanced([_plugin(_keys(ring))]), CONF: _conf()}


def reload_command(path: str) -> list[str]:
    """The arguments of `rabbitmqctl` that make a node that runs read the keys in its ``advanced.config`` at `path`."""
    if not re.fullmatch(r"[A-Za-z0-9_./@+-]+", path):
        raise InvalidInput(f"path {path!r} cannot be written in Erlang: use letters, digits and ./-_")
    return ["eval", RELOAD.format(path=path)]


def worker_password(ring: Callable[[], KeyRing], vhost: str | None, name: str) -> Callable[[], str]:
    """A password for the workers' own connection: they hold the key ring, and need no account at the broker.

    A token of a few minutes, renewed after half of its time, or when the ring has another signing key.
    """
    made: tuple[str, float, str] | None = None

    def password() -> str:
        nonlocal made
        kid, _ = ring().signing
        now = time.time()
        if made is None or made[0] != kid or now > made[1]:
            token = issue(ring(), sub=name, role="admin", clusters=["*"], ttl=_WORKER_TTL, scope=for_workers(vhost))
            made = (kid, now + _WORKER_TTL / 2, token)
        return made[2]

    return password


def _advanced(settings: list[str]) -> str:
    body = ",\n  ".join(settings)
    return f"""\
%% Written by `rainbow broker setup --oauth-config`. It holds signing keys: mode 0600, for the broker's account only.
[
  {body}
].
"""


def _plugin(*settings: str) -> str:
    return "{rabbitmq_auth_backend_oauth2, [\n    " + ",\n    ".join(settings) + "\n  ]}"


def _keys(ring: KeyRing) -> str:
    listed = ",\n".join(
        f'        <<"{kid}">> => {{map, #{{<<"kty">> => <<"oct">>, <<"alg">> => <<"{ALGORITHM}">>, '
        f'<<"k">> => <<"{base64.urlsafe_b64encode(key).rstrip(b"=").decode()}">>}}}}'
        for kid, key in ring.keys
    )
    # The algorithm is fixed here as it is in our own code: what a token says of it does not count.
    return f"""{{key_config, [
      {{algorithms, [<<"{ALGORITHM}">>]}},
      {{signing_keys, #{{
{listed}
      }}}}
    ]}}"""


def _conf() -> str:
    return f"""\
# Written by `rainbow broker setup --oauth-config`, for RabbitMQ 4.x: add it to rabbitmq.conf, or put it into conf.d.
# The signing keys are in advanced.config.
auth_backends.1 = internal
auth_backends.2 = oauth2
auth_oauth2.resource_server_id = {AUDIENCE}
auth_oauth2.scope_prefix = {AUDIENCE}.
auth_oauth2.preferred_username_claims.1 = sub
"""
