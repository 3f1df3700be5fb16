"""Settings: one YAML file, each of them also an environment variable, rainbow v1's file read as well.

Search order: the path given, `RAINBOW_CONFIG`, `./rainbow-config.yaml`, `~/.config/rainbow/rainbow-config.yaml`,
and the embedded instance's own (`rainbow up`). Folders are those of the XDG Base Directory Specification. A setting
`broker.url` is `RAINBOW_BROKER_URL` in the environment, which wins. Secrets are never shown by `repr`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args
from urllib.parse import unquote

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from rainbow import paths
from rainbow.errors import InvalidSettings
from rainbow.models.images import AlgorithmSettings, CompatibilitySettings
from rainbow.models.staging import StagingSettings
from rainbow.models.waiting import WaitingSettings
from rainbow.models.wire import ClusterName, explain
from rainbow.security.bearer import TokenText
from rainbow.urls import addresses, redact, split, usual

FILE_NAME = "rainbow-config.yaml"
#: Where the embedded instance lives.
DATA_DIR = paths.data_home() / "rainbow"
_MAX_FILE = 4 << 20


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _path(value: Any) -> Any:
    return paths.expand(value) if isinstance(value, str) and value else value


Location = Annotated[Path, BeforeValidator(_path)]
#: Used by programs that are started elsewhere, too.
Folder = Annotated[Path, BeforeValidator(_path), AfterValidator(Path.absolute)]
Seconds = Annotated[float, Field(gt=0)]


def _readable(what: str) -> AfterValidator:
    """A URL that cannot be read is refused here, before any part of it is taken for a host or a name."""

    def check(url: SecretStr) -> SecretStr:
        for one in addresses(url.get_secret_value(), what):
            split(one, what)
        return SecretStr(usual(url.get_secret_value()))

    return AfterValidator(check)


def _joined(value: Any) -> Any:
    """Several URLs as one text, as they are written in the environment."""
    if isinstance(value, list) and value and all(isinstance(url, str) and url.strip() for url in value):
        return ",".join(value)
    return value


class TlsSettings(_Section):
    """`ca` verifies the server; `cert` and `key` are ours. The host name is always checked."""

    ca: Location | None = None
    cert: Location | None = None
    key: Location | None = None


class BrokerSettings(_Section):
    """How to reach the message broker. A token may stand in for user and password (`oauth: true`).

    `url` may be a list, or several URLs with commas between them, or name several hosts: they are tried in turn.
    """

    url: Annotated[SecretStr, BeforeValidator(_joined), _readable("broker")] = SecretStr(
        "amqp://guest:guest@127.0.0.1:5672/rainbow"
    )
    oauth: bool = False
    tls: TlsSettings = TlsSettings()
    heartbeat: Seconds = 15.0
    connect_timeout: Seconds = 10.0
    publish_timeout: Seconds = 30.0


class StoreSettings(_Section):
    """How to reach the store: for the scheduler's side only."""

    url: Annotated[SecretStr, _readable("store")] = SecretStr("redis://127.0.0.1:6379/0")
    prefix: str = "rainbow:"
    tls: TlsSettings = TlsSettings()
    timeout: Seconds = 5.0
    keep: Seconds = 7 * 86400.0
    jobspec_bytes: Annotated[int, Field(ge=0, le=1 << 20)] = 16_384


class QueueSettings(_Section):
    """Bounds of the queues (`rainbow.topology.Limits`). Changing them for queues that exist needs their deletion."""

    kind: Literal["quorum", "classic"] = "quorum"
    dispatch_timeout: Seconds = 900.0
    max_submissions: Annotated[int, Field(gt=0)] = 1_000_000
    max_cluster_jobs: Annotated[int, Field(gt=0)] = 100_000
    max_other: Annotated[int, Field(gt=0)] = 2_000_000


class LimitSettings(_Section):
    """What is refused at the edge."""

    message_bytes: Annotated[int, Field(gt=0)] = 1 << 20
    control_bytes: Annotated[int, Field(gt=0)] = 64 << 20
    depth: Annotated[int, Field(gt=0, le=200)] = 64


class AlgorithmsSettings(_Section):
    selection: AlgorithmSettings = AlgorithmSettings(name="least-loaded")
    match: AlgorithmSettings = AlgorithmSettings(name="match")


class BreakerSettings(_Section):
    """When a cluster on which jobs fail at once is throttled: it then gets what nothing else can run, and a probe."""

    threshold: Annotated[float, Field(ge=0, lt=1)] = 0.8
    fast: Seconds = 10.0
    probe: Seconds = 10.0


class SchedulerSettings(_Section):
    """The workers. `secret` is rainbow v1's registration secret, in force only with `allow_secret`.

    The two times to live are of tokens that registering gives out: RabbitMQ, which cannot revoke, accepts them so long.
    """

    secret: SecretStr | None = None
    allow_secret: bool = False
    name: str | None = None
    algorithms: AlgorithmsSettings = AlgorithmsSettings()
    declare: bool = True
    batch: Annotated[int, Field(gt=0, le=1000)] = 500
    prefetch: Annotated[int, Field(gt=0, le=60_000)] = 2500
    reserve: Seconds = 60.0
    alive_after: Seconds = 35.0
    max_attempts: Annotated[int, Field(gt=0)] = 20
    retry_after: Seconds = 5.0
    breaker: BreakerSettings = BreakerSettings()
    failover_rate: Annotated[float, Field(gt=0)] = 100.0
    waiting: WaitingSettings = WaitingSettings()
    metrics: str | None = None
    metrics_users: bool = False
    audit: Location | None = None
    audit_bytes: Annotated[int, Field(ge=1024)] = 64 << 20
    audit_keep: Annotated[int, Field(ge=0, le=1000)] = 10
    agent_token_ttl: Annotated[float, Field(ge=20)] = 30 * 86400.0
    user_token_ttl: Seconds = 365 * 86400.0


class WebSettings(_Section):
    """The web console and the HTTP API. `rate` is requests a second for each caller, `burst` how many at once.

    `cert` and `key` are PEM files: with them it serves HTTPS.
    """

    listen: str = "127.0.0.1:8080"
    cert: Location | None = None
    key: Location | None = None
    session_hours: Annotated[float, Field(gt=0, le=720)] = 8.0
    rate: Annotated[float, Field(gt=0)] = 50.0
    burst: Annotated[int, Field(gt=0)] = 200


class ClusterSettings(_Section):
    """The cluster this agent serves, as registration left it: `secret` is its token, `key` signs."""

    name: ClusterName | None = None
    secret: TokenText | None = None
    keys: dict[str, SecretStr] = Field(default_factory=dict)
    registration: str | None = None


class ClusterToken(_Section):
    """A cluster one may submit to, and the token for it."""

    name: str
    token: TokenText


class GraphSettings(_Section):
    """The graph backend; rainbow v1's `memory` is today's `folded`."""

    name: str = "folded"
    host: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)


class AgentSettings(_Section):
    """The agent beside Flux. `graph` is a JGF or R file (else Flux is asked); `subsystems` a folder of JGF files."""

    executor: str = "auto"
    options: dict[str, Any] = Field(default_factory=dict)
    state_dir: Folder = paths.state_home() / "rainbow-agent"
    graph: Location | None = None
    subsystems: Location | None = None
    matcher: Literal["count", "fluxion"] = "count"
    admission: list[AlgorithmSettings] = Field(default_factory=list)
    max_queued: Annotated[int, Field(ge=0)] | None = None
    allowed_users: list[str] | None = None
    values: dict[str, bool | int | float | str] = Field(default_factory=dict)
    prefetch: Annotated[int, Field(gt=0, le=1000)] = 256
    report_every: Seconds = 10.0
    grace: Seconds = 20.0
    role: Literal["share", "stand-by"] = "share"
    health_file: Location | None = None
    metrics: str | None = None


class Settings(_Section):
    """Everything. Each program reads the sections it needs."""

    broker: BrokerSettings = BrokerSettings()
    store: StoreSettings = StoreSettings()
    queues: QueueSettings = QueueSettings()
    limits: LimitSettings = LimitSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    cluster: ClusterSettings = ClusterSettings()
    clusters: list[ClusterToken] = Field(default_factory=list)
    graphdatabase: GraphSettings = GraphSettings()
    agent: AgentSettings = AgentSettings()
    web: WebSettings = WebSettings()
    compatibility: CompatibilitySettings = CompatibilitySettings()
    staging: StagingSettings = StagingSettings()
    token: TokenText | None = None
    token_file: Location | None = None
    keyring: Location = paths.config_home() / "rainbow" / "keys.json"
    data_dir: Location = DATA_DIR
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"


def find(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The settings file in force, None when there is none. A file asked for by name must exist."""
    named = path or environ.get("RAINBOW_CONFIG")
    if named:
        file = paths.expand(named)
        if not file.is_file():
            raise InvalidSettings(f"no settings file at {file}: make one with `rainbow config init`")
        return file
    places = (Path(FILE_NAME), paths.config_home(environ) / "rainbow" / FILE_NAME, DATA_DIR / FILE_NAME)
    return next((f for f in places if f.is_file()), None)


def load(path: str | Path | None = None, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings from file and environment. Raises InvalidSettings naming the setting."""
    file = find(path, environ)
    data = read_document(file) if file else {}
    for names, kind in _leaves(Settings):
        text = environ.get("RAINBOW_" + "_".join(names).upper())
        if text is None:
            continue
        section = data
        for name in names[:-1]:
            section = section.setdefault(name, {})
        section[names[-1]] = _from_text(text, kind)
    try:
        return Settings.model_validate(data)
    except ValidationError as exc:
        raise InvalidSettings(f"{file or 'the environment'}: {redact(explain(exc, Settings))}") from None


def read_document(file: Path) -> dict[str, Any]:
    """The mapping in a settings file, in today's spelling."""
    import yaml  # not needed when everything comes from the environment

    try:
        if file.stat().st_size > _MAX_FILE:
            raise InvalidSettings(f"{file} is over {_MAX_FILE} bytes: this cannot be a settings file")
        data = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as exc:
        raise InvalidSettings(f"{file} cannot be read: {getattr(exc, 'strerror', None) or 'it is not UTF-8'}") from None
    except (yaml.YAMLError, RecursionError) as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark else ""
        problem = _unquoted(getattr(exc, "problem", None) or "nested too deep")
        raise InvalidSettings(f"{file} is not YAML{where}: {problem}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise InvalidSettings(f"{file} must hold a mapping of settings")
    return _from_first_rainbow(data)


def _unquoted(problem: str) -> str:
    """What the YAML library says, without what it quotes: that is a secret, when one begins with ``*`` or ``!``."""
    shown = re.sub(r"""(['"])[^'"<>]{2,}\1""", "a name", problem)
    return shown if shown == problem else f"{shown}; put what begins with *, & or ! in quotes"


def _from_first_rainbow(data: dict[str, Any]) -> dict[str, Any]:
    """Spellings of rainbow v1: `graph`, its graph servers' names, and `algorithm` before `algorithms`."""
    data = dict(data)
    scheduler = data.get("scheduler")
    if isinstance(scheduler, dict) and "algorithm" in scheduler and "algorithms" not in scheduler:
        scheduler = dict(scheduler)
        selection = scheduler.pop("algorithm")
        named = {"name": selection} if isinstance(selection, str) else selection
        scheduler["algorithms"] = {"selection": named}
        data["scheduler"] = scheduler
    if "graph" in data and "graphdatabase" not in data:
        data["graphdatabase"] = data.pop("graph")
    cluster = data.get("cluster")
    if isinstance(cluster, dict) and "token" in cluster:
        data["cluster"] = {k: v for k, v in cluster.items() if k != "token"}  # it never meant anything
    graph = data.get("graphdatabase")
    if isinstance(graph, dict) and graph.get("name") in ("memory", "neo4j", "memgraph"):
        # Those graph servers answered the question that the folded summary answers now.
        data["graphdatabase"] = {**graph, "name": "folded"}
    return data


def _leaves(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, (*prefix, name))
        else:
            yield (*prefix, name), kind


def _from_text(text: str, kind: Any) -> Any:
    """Lists and mappings are written as YAML in the environment; the rest is text that the model converts."""
    if any(getattr(a, "__origin__", a) in (list, dict) for a in (kind, *get_args(kind))):
        import yaml

        try:
            return yaml.safe_load(text)
        except yaml.YAMLError:
            raise InvalidSettings("a list or mapping in the environment must be YAML: [a, b] or {a: b}") from None
    return text


def secret(value: SecretStr | None) -> str | None:
    return None if value is None else value.get_secret_value()


def secrets(settings: Settings) -> Iterator[str]:
    """Everything in `settings` that nobody may read in a log: of URLs the password, as it is written and as it is."""
    yield from _secrets(settings)
    for url in (settings.broker.url, settings.store.url):
        for one in addresses(url.get_secret_value(), "broker"):
            password = split(one, "broker").password
            if password:
                yield from (password, unquote(password))


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, SecretStr):
        if "://" not in value.get_secret_value():
            yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _secrets(item)


def connect_options(settings: Settings, name: str, *, user: str | None = None, password: Any = None) -> Any:
    """`rainbow.brokers.ConnectOptions` from the settings."""
    from rainbow.brokers import ConnectOptions, Tls

    broker = settings.broker
    files = [str(p) if p else None for p in (broker.tls.ca, broker.tls.cert, broker.tls.key)]
    return ConnectOptions(
        url=broker.url.get_secret_value(),
        name=name,
        user=user,
        password=password,
        tls=Tls(*files) if any(files) else None,
        heartbeat=broker.heartbeat,
        connect_timeout=broker.connect_timeout,
        publish_timeout=broker.publish_timeout,
        max_message_bytes=settings.limits.control_bytes,
    )


def limits(settings: Settings) -> Any:
    """`rainbow.topology.Limits` from the settings."""
    from rainbow.topology import Limits

    q = settings.queues
    return Limits(
        kind=q.kind,
        dispatch_timeout=q.dispatch_timeout,
        max_submissions=q.max_submissions,
        max_cluster_jobs=q.max_cluster_jobs,
        max_other=q.max_other,
    )
