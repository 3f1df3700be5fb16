"""Serve the service over gRPC until told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from rainbow.errors import InvalidInput, InvalidSettings, RainbowError
from rainbow.gateway import wire
from rainbow.gateway.service import Service, failed
from rainbow.settings import Settings

log = logging.getLogger(__name__)

#: Calls that are worked on at once, and that may wait beside them.
_THREADS, _WAITING = 16, 256
_CALLS = {
    "Register": "register",
    "RegisterSubsystem": "register_subsystem",
    "UpdateState": "update_state",
    "SubmitJob": "submit_job",
    "ReceiveJobs": "receive_jobs",
    "AcceptJobs": "accept_jobs",
    "Satisfy": "satisfy",
}
#: Why a call failed, in the trailing metadata: v1's messages have no place for it.
ERROR = "rainbow-error"


def make_server(settings: Settings, service: Service) -> grpc.Server:
    """A server that calls `service`; it has no address yet."""
    server = grpc.server(
        ThreadPoolExecutor(_THREADS, thread_name_prefix="rainbow-gateway"),
        maximum_concurrent_rpcs=_THREADS + _WAITING,
        options=[("grpc.max_receive_message_length", settings.limits.control_bytes), ("grpc.so_reuseport", 0)],
    )
    for name, methods in wire.METHODS.items():
        package = name.rpartition(".")[0]
        handlers = {method: _handler(service, package, method, *kinds) for method, kinds in methods.items()}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    return server


def _handler(service: Service, package: str, method: str, asked: str, told: str) -> grpc.RpcMethodHandler:
    call: Callable[[Any], dict[str, Any]] = getattr(service, _CALLS[method])
    request, response = wire.message(package, asked), wire.message(package, told)

    def answer(given: Any, context: grpc.ServicerContext) -> Any:
        try:
            fields = call(given)
        except RainbowError as exc:
            fields = {"status": failed(method, exc), "error": exc.message}
        except Exception:
            log.exception("a call failed", extra={"action": method})
            fields = {"status": failed(method, RainbowError("failed")), "error": "an error of the gateway: see its log"}
        error = fields.pop("error", "")
        if error:
            log.info("refused: %s", error, extra={"action": method})
            context.set_trailing_metadata(((ERROR, error.encode("ascii", "replace").decode()[:1024]),))
        return response(**fields)

    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def serve(
    settings: Settings, listen: str, tls: tuple[Path, Path] | None, insecure: bool, ready: Callable[[str], None]
) -> None:
    """Answer on `listen` until SIGTERM or SIGINT. `ready` is called with the address once it does.

    Args:
        settings: The broker, limits, and the gateway's own token.
        listen: ``HOST:PORT``; port 0 for any.
        tls: Certificate and key, PEM files.
        insecure: Serve other addresses than loopback without TLS.
        ready: Called once.

    Raises:
        InvalidSettings: an address that cannot be listened on, or must not be without TLS.
    """
    host = listen.rpartition(":")[0].strip("[]")
    if tls is None and not insecure and host not in ("127.0.0.1", "::1", "localhost"):
        raise InvalidSettings(
            f"{listen} without TLS: tokens and secrets could be read on the way. Give --cert and --key, or --insecure"
        )
    service = Service(settings)
    server = make_server(settings, service)
    try:
        port = _bound(server, listen, tls)
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        server.start()
        ready(f"{host or '127.0.0.1'}:{port}")
        stop.wait()
        server.stop(5).wait()
    finally:
        service.close()


def _bound(server: grpc.Server, listen: str, tls: tuple[Path, Path] | None) -> int:
    try:
        if tls is None:
            port = server.add_insecure_port(listen)
        else:
            cert, key = (file.read_bytes() for file in tls)
            port = server.add_secure_port(listen, grpc.ssl_server_credentials([(key, cert)]))
    except OSError as exc:
        raise InvalidSettings(f"--cert and --key: {exc.filename} cannot be read: {exc.strerror}") from None
    except RuntimeError:
        port = 0
    if not port:
        raise InvalidInput(f"cannot listen on {listen}: is it HOST:PORT, and free?")
    return int(port)
