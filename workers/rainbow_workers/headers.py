"""AMQP headers that the workers put on their own messages."""

from __future__ import annotations

#: A submitter's token, which goes with a submission that has to wait.
AUTHORIZATION = "authorization"
KIND = "rainbow-kind"
ROUTE = "rainbow-route"
REGISTRATION = "rainbow-registration"
RECORDED = "rainbow-recorded"
#: It may have been handed out before the store lost its data.
DOUBTFUL = "rainbow-doubtful"
#: A second signature of a dispatch, by a key that only workers have.
ORIGIN = "rainbow-origin"

#: `rainbow-kind` of a dispatch that waits in a hold queue for another try.
HELD_DISPATCH = "held-dispatch"
#: `rainbow-kind` of a dispatch that came back and goes to whom clusters bid for next.
BID_DISPATCH = "bid-dispatch"
#: `rainbow-kind` of a dispatch that was taken out of the queue of a cluster that cannot be reached.
REBOUND = "rebound"
