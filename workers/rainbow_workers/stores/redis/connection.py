"""Talking to the server: settings, one retry, and what its errors mean to us."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import redis
from redis.connection import ConnectionPool
from redis.sentinel import MasterNotFoundError

from rainbow.errors import BadCredentials, InvalidSettings, RainbowError, StoreUnavailable
from rainbow_workers.stores import StoreOptions
from rainbow_workers.stores.redis.pool import close_pool, make_pool, place
from rainbow_workers.stores.redis.scripts import script

#: How often a call is sent at most. A connection that stood idle while the server was restarted is noticed only
#: when it is used, and a lost reply only by waiting: the scripts recognise what they did already.
TRIES = 2

#: Beginnings of error replies that say "not now" (redis.io/docs/latest/develop/reference/protocol-spec/#simple-errors).
_NOT_NOW = {
    "READONLY": "it is a read-only replica",
    "LOADING": "it is still loading its data",
    "MASTERDOWN": "it is a replica without its primary",
    "NOREPLICAS": "it has too few replicas to write",
    "MISCONF": "it cannot save to disk and takes no writes",
    "OOM": "it is out of memory (maxmemory) and takes no writes",
    "BUSY": "it is busy with a script",
    "CLUSTERDOWN": "its cluster is down",
    "TRYAGAIN": "its cluster is moving keys",
    "UNKILLABLE": "it is busy with a script",
}

#: By `redis_mode`: servers that cannot be a store.
_UNFIT = {
    "cluster": "is a Redis Cluster, which is not supported: use one primary, and Sentinel for failover "
    "(redis+sentinel://)",
    "sentinel": "is a Sentinel: use redis+sentinel://HOST:PORT/SERVICE/DB",
}

#: redis-py takes the code off the text of errors that it has a class for.
_CODES: dict[type[Exception], str] = {
    redis.exceptions.ReadOnlyError: "READONLY",
    redis.exceptions.BusyLoadingError: "LOADING",
    redis.exceptions.MasterDownError: "MASTERDOWN",
    redis.exceptions.OutOfMemoryError: "OOM",
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
    redis.exceptions.TryAgainError: "TRYAGAIN",
}


class Connection:
    """The server behind a URL, under a key prefix. Calls may come from any thread; each takes a connection of its own.

    `seen` is the highest version of the change counter that was read.
    """

    def __init__(self, options: StoreOptions) -> None:
        self.where = place(options.url)
        self.seen = 0
        self._prefix = options.prefix.encode()
        self._closed = False
        self._pool = make_pool(options, self._greet, options.timeout / TRIES)
        self._client: Any = redis.Redis(connection_pool=self._pool)
        self._client.response_callbacks.clear()  # replies as the server sends them, in every release of redis-py

    def run(self, name: str, *args: bytes | str | int | float, tries: int = TRIES) -> Any:
        """The reply of the script `name`, in bytes. Raises StoreUnavailable, BadCredentials."""
        one = script(name)
        try:
            return self.command("EVALSHA", one.sha, 1, self._prefix, *args, tries=tries)
        except redis.exceptions.NoScriptError:
            # A server that was restarted has forgotten it: EVAL gives it the text, and it remembers that.
            return self.command("EVAL", one.source, 1, self._prefix, *args, tries=tries)

    def begin(self, name: str, *args: bytes | str | int | float) -> Call:
        """`run` in two steps: the call is sent now, its reply read later. When it fails it is tried again then."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        try:
            connection = self._sent("EVALSHA", script(name).sha, 1, self._prefix, *args)
        except (redis.exceptions.RedisError, OSError) as exc:
            if not _may_help(exc):
                self._fail(exc)
            connection = None
        return Call(self._pool, connection, lambda: self.run(name, *args, tries=TRIES - 1))

    def _sent(self, *args: bytes | str | int | float) -> Any:
        """The connection on which a command was sent, for its reply."""
        connection: Any = self._pool.get_connection()
        try:
            connection.send_command(*args)
        except BaseException:
            connection.disconnect()
            self._pool.release(connection)
            raise
        return connection

    def command(self, *args: bytes | str | int | float, tries: int = TRIES) -> Any:
        """The reply of one command."""
        if self._closed:
            raise StoreUnavailable("the store is closed")
        for left in reversed(range(tries)):
            try:
                return self._client.execute_command(*args)
            except redis.exceptions.NoScriptError:
                raise
            except (redis.exceptions.RedisError, OSError) as exc:
                if not left or not _may_help(exc):
                    self._fail(exc)
                if _demoted(exc):
                    self._leave()
        raise AssertionError("unreachable")

    def wait(self, stream: str, since: int, timeout: float) -> bool:
        """Block until the stream has an entry after id `since`, at most `timeout` seconds (fewer than a socket's)."""
        key = self._prefix + stream.encode()
        milliseconds = max(1, int(1000 * timeout))
        return bool(self.command("XREAD", "COUNT", 1, "BLOCK", milliseconds, "STREAMS", key, f"{since}-0"))

    def close(self) -> None:
        self._closed = True
        close_pool(self._pool)

    def _greet(self, connection: Any) -> None:
        """Set a new connection up, and tell the store which run of the server it has reached."""
        connection.on_connect()
        try:
            connection.send_command("INFO", "server")
            info = connection.read_response()
        except redis.exceptions.NoPermissionError:
            # Not ours to see: then only an emptied store is noticed, not one that lost its last writes.
            return
        server = fields(info)
        problem = _UNFIT.get(server.get("redis_mode", ""))
        if problem is not None:
            connection.disconnect()
            raise InvalidSettings(f"the store at {self.where} {problem}")
        run = server.get("run_id", "")
        connection.send_command("EVAL", script("open").source, 1, self._prefix, run, self.seen)
        connection.read_response()

    def _fail(self, exc: Exception) -> NoReturn:
        error = explain(exc, self.where)
        if isinstance(exc, redis.exceptions.ResponseError):
            self._leave()
        raise error from exc

    def _leave(self) -> None:
        """Look the server's address up again: a primary that became a replica goes on answering on its connections.

        Those that others use now are not ours to close; they will see for themselves.
        """
        self._pool.disconnect(inuse_connections=False)


class Call:
    """A script that was sent. Either `reply` or `drop` is called, once."""

    def __init__(self, pool: ConnectionPool, connection: Any, again: Callable[[], Any]) -> None:
        self._pool = pool
        self._connection = connection
        self._again = again

    def reply(self) -> Any:
        """Its reply, as `Connection.run` gives it. The scripts recognise a call that is sent once more."""
        if self._connection is None:
            return self._again()
        try:
            return self._connection.read_response()
        except Exception:
            # Whatever it was, also that somebody closed the connection meanwhile: what may still come on it is not
            # for the next call.
            self._connection.disconnect()
            return self._again()
        finally:
            self._pool.release(self._connection)

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.disconnect()
            self._pool.release(self._connection)


def _may_help(exc: Exception) -> bool:
    """Whether the same call may succeed on another connection."""
    if isinstance(exc, redis.exceptions.AuthenticationError | redis.exceptions.BusyLoadingError):
        return False
    return _demoted(exc) or isinstance(exc, redis.exceptions.ConnectionError | redis.exceptions.TimeoutError | OSError)


def _demoted(exc: Exception) -> bool:
    """Whether a replica answered: the primary that it was, or that its address had, is elsewhere now."""
    return isinstance(exc, redis.exceptions.ReadOnlyError) or (
        isinstance(exc, redis.exceptions.ResponseError) and "READONLY" in str(exc)
    )


def explain(exc: Exception, where: str) -> RainbowError:
    """Our error for one of redis-py's."""
    text = str(exc)
    if isinstance(exc, redis.exceptions.MovedError | redis.exceptions.AskError):
        return InvalidSettings(f"the store at {where} {_UNFIT['cluster']}")
    if isinstance(exc, MasterNotFoundError):
        return StoreUnavailable(f"no Sentinel of {where} answers with a primary that can be reached")
    if isinstance(exc, redis.exceptions.AuthenticationError | redis.exceptions.AuthenticationWrongNumberOfArgsError):
        return BadCredentials(f"the store at {where} refused our user or password: {_first_line(text)}")
    if isinstance(exc, redis.exceptions.NoPermissionError) or "NOPERM" in text:
        return BadCredentials(f"our user lacks a right on the store at {where}: {_first_line(text)}")
    if isinstance(exc, redis.exceptions.TimeoutError):
        return StoreUnavailable(f"the store at {where} does not answer in time")
    if isinstance(exc, redis.exceptions.ResponseError | redis.exceptions.BusyLoadingError):
        # Before Redis 7 an error inside a script has its code somewhere in the text.
        words = {_CODES.get(type(exc)), *re.findall(r"\b[A-Z]+\b", text)}
        for code, meaning in _NOT_NOW.items():
            if code in words:
                return StoreUnavailable(f"the store at {where} takes no work now: {meaning}")
        return StoreUnavailable(f"the store at {where} failed: {_first_line(text)}")
    return StoreUnavailable(f"the store at {where} cannot be reached: {_first_line(text)}")


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]


def fields(info: bytes) -> dict[str, str]:
    """The fields of an INFO reply."""
    pairs = (line.partition(":") for line in info.decode("utf-8", "replace").splitlines())
    return {key: value.strip() for key, _, value in pairs}
