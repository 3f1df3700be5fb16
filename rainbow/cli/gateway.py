"""`rainbow-gateway`: rainbow v1's gRPC service, for its clients."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rainbow import program
from rainbow.errors import InvalidInput, InvalidSettings

_TEXT = """Serve the gRPC service of rainbow v1, so that its clients go on unchanged. Their requests become those of
today's rainbow, each with the caller's own token. The token in the settings answers what v1's clients ask without one
(which clusters can run a jobspec)."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(message)


def main() -> None:
    """Run the program: the entry point of `rainbow-gateway`."""
    program.run("rainbow-gateway", lambda: _gateway(sys.argv[1:]))


def _parser() -> _Parser:
    parser = _Parser(prog="rainbow-gateway", description=_TEXT)
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:50051", help="address to serve on")
    parser.add_argument("--cert", type=Path, metavar="FILE", help="certificate, PEM: serve with TLS")
    parser.add_argument("--key", type=Path, metavar="FILE", help="its key")
    parser.add_argument("--insecure", action="store_true", help="serve other addresses than loopback without TLS")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file")
    return parser


def _gateway(argv: Sequence[str]) -> None:
    from rainbow import logs, settings

    given = _parser().parse_args(argv)
    if (given.cert is None) != (given.key is None):
        raise InvalidInput("--cert and --key go together")
    chosen = settings.load(given.config)
    logs.setup(chosen.log_level, chosen.log_format, settings.secrets(chosen))
    try:
        from rainbow.gateway.server import serve
    except ImportError as exc:
        raise InvalidSettings(f"rainbow-gateway needs {exc.name}: pip install 'rainbow-hpc[gateway]'") from None
    tls = None if given.cert is None else (given.cert, given.key)
    serve(chosen, given.listen, tls, given.insecure, lambda where: print(f"rainbow-gateway is up: {where}", flush=True))  # noqa: T201
