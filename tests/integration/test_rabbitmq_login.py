"""Logging in to RabbitMQ: TLS, rights, tokens that are renewed; on a server of our own set up for it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import jwt
import pytest

from faults.proxy import proxied
from rainbow.brokers import ConnectOptions, Tls, connect
from rainbow.brokers.base import Broker
from rainbow.errors import BadCredentials, BrokerUnavailable, Denied
from rainbow.testing.brokers import LIMIT, Place, collect
from servers import NoServer, Private, RabbitServer, Run, free_ports, start_rabbit, wait_until

pytestmark = pytest.mark.timeout(240)

KEY = b"0123456789abcdef0123456789abcdef"
VHOST = "logins"
Make = Callable[..., Broker]


def _openssl(folder: Path, command: str, *more: str) -> None:
    subprocess.run(["openssl", *command.split(), *more], cwd=folder, check=True, capture_output=True)


def _certificates(folder: Path) -> None:
    """A CA, a certificate for localhost and one for a client; a CA nobody knows."""
    for name in ("ca", "stranger"):
        _openssl(
            folder,
            f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem",
            *("-addext", "basicConstraints=critical,CA:TRUE"),
        )
    for name in ("server", "client"):
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost\nkeyUsage=digitalSignature\n")
        _openssl(folder, f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr")
        _openssl(
            folder,
            f"x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
            f"-extfile {name}.ext -out {name}.pem",
        )


class Site:
    def __init__(self, private: Private[RabbitServer], folder: Path, tls_port: int) -> None:
        self.private = private
        self.folder = folder
        self.tls_port = tls_port
        self.server = private.server

    def file(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def url(self) -> str:
        return self.server.vhost_url(VHOST)

    @property
    def bare_url(self) -> str:
        """Without user and password."""
        return f"amqp://{self.server.host}:{self.server.port}/{VHOST}"


@pytest.fixture(scope="module")
def site(test_run: Run) -> Iterator[Site]:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on PATH")
    folder = Path(tempfile.mkdtemp(prefix="login-rabbitmq-", dir=test_run.folder))
    _certificates(folder)
    [tls_port] = free_ports(1)
    config = (
        f"listeners.ssl.1 = 127.0.0.1:{tls_port}\nssl_options.cacertfile = {folder}/ca.pem\n"
        f"ssl_options.certfile = {folder}/server.pem\nssl_options.keyfile = {folder}/server.key\n"
        "ssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n"
    )
    secret = urlsafe_b64encode(KEY).rstrip(b"=").decode()
    advanced = (
        "[{rabbit, [{auth_backends, [rabbit_auth_backend_internal, rabbit_auth_backend_oauth2]}]},\n"
        ' {rabbitmq_auth_backend_oauth2, [{resource_server_id, <<"rainbow">>}, {key_config, [{signing_keys, '
        f'#{{<<"k1">> => {{map, #{{<<"kty">> => <<"oct">>, <<"k">> => <<"{secret}">>}}}}}}}}]}}]}}].\n'
    )
    try:
        private = Private(lambda f: start_rabbit(f, config, "rabbitmq_auth_backend_oauth2", advanced), folder)
    except NoServer as exc:
        pytest.skip(f"no server: {exc}")
    try:
        private.server.make_vhosts([VHOST])
        yield Site(private, folder, tls_port)
    finally:
        private.end()


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Broker] = []

    def make(url: str, **options: object) -> Broker:
        made.append(connect(ConnectOptions(url, **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for broker in made:
        broker.close()


@pytest.fixture
def place() -> Place:
    return Place("quorum")


def token(*scope: str, life: float = 600) -> str:
    now = time.time()
    claims = {"iss": "tests", "aud": "rainbow", "sub": "agent", "iat": now, "exp": now + life, "scope": list(scope)}
    return jwt.encode(claims, KEY, algorithm="HS256", headers={"kid": "k1"})


# -- TLS --------------------------------------------------------------------------------------------------


def test_tls_with_a_client_certificate(make: Make, site: Site, place: Place) -> None:
    tls = Tls(ca=site.file("ca.pem"), cert=site.file("client.pem"), key=site.file("client.key"))
    broker = make(f"amqps://guest:guest@localhost:{site.tls_port}/{VHOST}", tls=tls)
    broker.declare(place.topology())
    broker.publish([place.message(b"x" * 200_000)]).check(LIMIT)
    assert len(collect(broker.consume(place.queue, prefetch=1), 1)[0].body) == 200_000


@pytest.mark.parametrize(
    ("host", "ca", "cert"),
    [("127.0.0.1", "ca", "client"), ("localhost", "stranger", "client"), ("localhost", "ca", None)],
    ids=["other host name", "unknown CA", "no client certificate"],
)
def test_tls_that_cannot_be_trusted(make: Make, site: Site, place: Place, host: str, ca: str, cert: str | None) -> None:
    files = {"cert": site.file(f"{cert}.pem"), "key": site.file(f"{cert}.key")} if cert else {}
    broker = make(
        f"amqps://guest:guest@{host}:{site.tls_port}/{VHOST}",
        tls=Tls(ca=site.file(f"{ca}.pem"), **files),
        connect_timeout=1.0,
        publish_timeout=2.0,
    )
    with pytest.raises(BrokerUnavailable):
        broker.declare(place.topology())
    assert not broker.status.connected


# -- vhosts and rights ------------------------------------------------------------------------------------


def test_a_vhost_that_comes_later_is_waited_for(make: Make, site: Site, place: Place) -> None:
    with proxied(site.server.host, site.server.port) as proxy:
        broker = make(site.server.vhost_url("later", proxy.port))
        wait_until(lambda: proxy.accepted >= 3, what="it keeps trying")
        site.server.make_vhosts(["later"])
        broker.declare(place.topology())
        broker.publish([place.message()]).check(LIMIT)


def test_a_vhost_we_have_no_right_to_stops_for_good(make: Make, site: Site, place: Place) -> None:
    site.server.make_vhosts(["private"])
    broker = make(
        f"amqp://{site.server.host}:{site.server.port}/private",
        user="agent",
        password=lambda: token(f"rainbow.write:{VHOST}/*"),
    )
    with pytest.raises(BadCredentials, match="vhost"):
        broker.declare(place.topology())


def test_no_right_to_publish_is_denied_and_harms_nothing_else(make: Make, site: Site, place: Place) -> None:
    make(site.url).declare(place.topology())
    broker = make(site.bare_url, user="agent", password=lambda: token(f"rainbow.write:{VHOST}/{place.work}"))
    broker.publish([place.message()]).check(LIMIT)
    [outcome] = broker.publish([place.message(exchange=place.dead)]).wait(LIMIT)
    assert isinstance(outcome, Denied)
    broker.publish([place.message()]).check(LIMIT)
    with pytest.raises(Denied):
        broker.declare(Place("quorum").topology())
    with pytest.raises(Denied):
        broker.delete([place.queue])


def test_no_right_to_read_does_not_stop_the_rest(make: Make, site: Site, place: Place) -> None:
    make(site.url).declare(place.topology())
    broker = make(site.bare_url, user="agent", password=lambda: token(f"rainbow.write:{VHOST}/{place.work}"))
    consumer = broker.consume(place.queue, prefetch=1)
    broker.publish([place.message()]).check(LIMIT)
    assert consumer.take(1, 1.0) == []


# -- tokens that run out ----------------------------------------------------------------------------------


def test_a_renewed_token_keeps_the_connection(make: Make, site: Site, place: Place) -> None:
    """S58: renewed without a gap: the same connection outlives its first token."""
    make(site.url).declare(place.topology())
    scopes = (f"rainbow.write:{VHOST}/{place.work}", f"rainbow.read:{VHOST}/{place.queue}")
    now = {"token": token(*scopes, life=8)}
    ends = time.monotonic() + 8
    broker = make(site.bare_url, user="agent", password=lambda: now["token"])
    consumer = broker.consume(place.queue, prefetch=5)
    broker.publish([place.message(b"first")]).check(LIMIT)
    consumer.ack(collect(consumer, 1))
    now["token"] = token(*scopes)
    broker.refresh_credentials()  # type: ignore[attr-defined]
    wait_until(lambda: time.monotonic() > ends + 2, what="the first token has run out")
    broker.publish([place.message(b"second")]).check(LIMIT)
    assert collect(consumer, 1)[0].body == b"second"
    assert broker.status.reconnects == 0


def test_an_expired_token_is_asked_for_again(make: Make, site: Site, place: Place) -> None:
    """The door closes on an open channel: the new token opens it, the message is told to try again."""
    make(site.url).declare(place.topology())
    scope = f"rainbow.write:{VHOST}/{place.work}"
    now = {"token": token(scope, life=3)}
    ends = time.monotonic() + 3
    broker = make(site.bare_url, user="agent", password=lambda: now["token"])
    broker.publish([place.message()]).check(LIMIT)
    wait_until(lambda: time.monotonic() > ends + 2, what="the token has run out")
    now["token"] = token(scope)
    wait_until(lambda: broker.publish([place.message()]).wait(LIMIT) == [None], what="the new token is used")
