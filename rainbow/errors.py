"""The one error hierarchy: every error has a stable `code`, used in replies, logs and exit codes.

The text of an error is one plain line that says what to do; a traceback shown to a person is a bug.
"""

from __future__ import annotations

from typing import ClassVar


class RainbowError(Exception):
    """Base of all errors raised on purpose.

    `code` is stable and machine-readable; `exit_code` is what the command line returns for it
    (1 refused, 2 wrong use or invalid input, 3 denied, 4 broker or store out of reach,
    5 no such thing, 124 timed out).
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    @property
    def message(self) -> str:
        return str(self)


# -- input ---------------------------------------------------------------------------------------


class InvalidInput(RainbowError):
    """Something given to us is malformed. Retrying it unchanged cannot help."""

    code = "invalid"
    exit_code = 2


class TooLarge(InvalidInput):
    """A message, or a part of one, is over its limit."""

    code = "too-large"


class InvalidGraph(InvalidInput):
    """A resource graph cannot be read."""

    code = "invalid-graph"


class InvalidJobspec(InvalidInput):
    """A jobspec cannot be read."""

    code = "invalid-jobspec"


class InvalidSettings(InvalidInput):
    """The settings are wrong or incomplete."""

    code = "invalid-settings"


class UnknownPlugin(InvalidInput):
    """There is no plugin of that name, or it cannot be loaded."""

    code = "unknown-plugin"


class NotFound(RainbowError):
    """There is no such job, cluster or thing, or the caller may not see it."""

    code = "not-found"
    exit_code = 5


class Conflict(RainbowError):
    """The thing exists already and belongs to somebody else, or changed meanwhile."""

    code = "conflict"


class Refused(RainbowError):
    """The job was refused, failed, or no cluster can place it."""

    code = "refused"


# -- identity ------------------------------------------------------------------------------------


class Denied(RainbowError):
    """No token, a bad one, or one without the right asked for."""

    code = "denied"
    exit_code = 3


class BadSignature(Denied):
    """A message has no signature, or one that its sender cannot have made."""

    code = "bad-signature"


# -- broker and store ----------------------------------------------------------------------------


class Unavailable(RainbowError):
    """Broker or store cannot be reached now. The same call may succeed later."""

    code = "unavailable"
    exit_code = 4


class BrokerUnavailable(Unavailable):
    """The broker cannot be reached."""

    code = "broker-unavailable"


class StoreUnavailable(Unavailable):
    """The store cannot be reached."""

    code = "store-unavailable"


class TooManyRequests(Unavailable):
    """The caller exceeded its rate. The same request may succeed in a second."""

    code = "too-many-requests"


class BadCredentials(Denied):
    """Broker or store refused our credentials. Never retried: it stops the program with a clear word."""

    code = "bad-credentials"


class PublishFailed(Unavailable):
    """The broker did not take a message (no confirm, a nack, or the connection was lost). May be retried."""

    code = "publish-failed"


class Unroutable(PublishFailed):
    """The broker has no queue for the message (returned because it was mandatory)."""

    code = "unroutable"


class QueueFull(PublishFailed):
    """A bounded queue refused the message (x-overflow: reject-publish)."""

    code = "queue-full"


class BrokerBlocked(PublishFailed):
    """The broker has a memory or disk alarm and takes no messages now."""

    code = "broker-blocked"


class TopologyMismatch(RainbowError):
    """A queue or exchange exists with other arguments than ours.

    `tolerable` when only limits differ (lengths, times to live): all was declared, and works with the limits it has.
    """

    code = "topology-mismatch"

    def __init__(self, message: str, *, tolerable: bool = False) -> None:
        super().__init__(message)
        self.tolerable = tolerable


class TimedOut(RainbowError, TimeoutError):
    """No answer within the time limit."""

    code = "timed-out"
    exit_code = 124
