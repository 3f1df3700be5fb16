"""Runs one pickled function on a cluster: ``python3 run.py CALL``. Needs cloudpickle, and nothing of rainbow.

The result goes to standard output as one line, ``rainbow-result HMAC BASE64``: a compressed pickle of (True, value) or
(False, exception), or plain text where there can be none. A large one of a staged call is in the file `rainbow-result`,
and ``*`` stands for it. What the function prints goes to standard error.
"""

import base64
import hashlib
import hmac
import json
import os
import pickle
import sys
import traceback
import zlib
from typing import Any

_PLAIN = "rainbow-problem "


def main(path: str) -> int:
    """Run the call in the file `path`. Returns the exit code: 1 if there is no result."""
    out = os.dup(1)
    os.dup2(2, 1)
    with open(path) as file:
        call = json.load(file)
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != call["python"]:
        return _problem(out, f"Python {here} runs here, the function was pickled by {call['python']}")
    try:
        import cloudpickle
    except ImportError:
        return _problem(out, f"{sys.executable} has no cloudpickle: install it there")
    try:
        function, arguments, named = cloudpickle.loads(base64.b64decode(call["data"]))
    except Exception as exc:
        return _problem(out, f"the function cannot be loaded here: {type(exc).__name__}: {exc}")
    try:
        answer: Any = (True, function(*arguments, **named), "")
    except BaseException as exc:
        traceback.print_exc()
        answer = (False, exc, traceback.format_exc())
    try:
        data = cloudpickle.dumps(answer)
        pickle.loads(data)  # noqa: S301 - our own, to see that it can be loaded
    except Exception as exc:
        what = "result" if answer[0] else "exception"
        return _problem(out, f"the {what} {answer[1]!r:.200} cannot be pickled: {exc}")
    data = zlib.compress(data)
    large = len(data) > call["limit"]
    if call["staged"]:
        with open("rainbow-result", "wb") as file:
            file.write(data if large else b"")
    elif large:
        most = call["limit"]
        return _problem(out, f"the result has {len(data)} bytes, at most {most} come home: use Executor(staging=True)")
    sign = hmac.new(call["key"].encode(), data, hashlib.sha256).hexdigest()
    os.write(out, f"rainbow-result {sign} {'*' if large else base64.b64encode(data).decode()}\n".encode())
    return 0 if answer[0] else 1


def _problem(out: int, text: str) -> int:
    os.write(out, (_PLAIN + " ".join(text.split()) + "\n").encode())
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
