"""Commands to an agent: signed with its cluster's keys, so that nobody else can cancel its jobs."""

from __future__ import annotations

from rainbow import codec, topology
from rainbow.brokers.base import Message
from rainbow.models.control import AgentCommand
from rainbow.security import signing
from rainbow_workers.headers import REGISTRATION
from rainbow_workers.keys import ClusterKeys


def message(keys: ClusterKeys, cluster: str, registration: str, command: AgentCommand) -> Message:
    """`command` on its way to the agent of `cluster`. Kept in the agent's queue while the agent is away."""
    body = codec.encode_json(command.model_dump(exclude_none=True))
    return Message(
        topology.AGENTS,
        cluster,
        body,
        message_id=command.id,
        headers={signing.HEADER: signing.sign(keys.of(cluster, registration), body), REGISTRATION: registration},
        # A cluster whose queue is gone has no agent to tell.
        mandatory=False,
    )
