"""What the agent must not forget: taken jobs, their handles, cancels, and events that are not confirmed yet.

In: what happened to jobs, one transaction a call. Out: rows, and events for the outbox.
Called by every part of the agent; it calls none of them.
"""

from rainbow_agents.journal.journal import Journal
from rainbow_agents.journal.rows import (
    ELSEWHERE,
    NEVER,
    OVER,
    Decided,
    JournalDown,
    Pending,
    Row,
    View,
    new_claim,
)

__all__ = ["ELSEWHERE", "NEVER", "OVER", "Decided", "Journal", "JournalDown", "Pending", "Row", "View", "new_claim"]
