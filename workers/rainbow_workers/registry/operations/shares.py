"""Operations on shares: what accounts and users are due and had, and what is set for them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from rainbow.errors import InvalidInput, NotFound
from rainbow.models.control import ListShares, SetShare, ShowQueue
from rainbow.models.shares import DEFAULT_ACCOUNT, FIELDS, Level, ShareTerms
from rainbow.security.tokens import Principal
from rainbow_workers.clusters.cache import ClusterCache
from rainbow_workers.registry.registrar import Address
from rainbow_workers.scheduling.decide import Payer
from rainbow_workers.scheduling.fair_share import FairShare
from rainbow_workers.scheduling.share_terms import ShareTable, name_of
from rainbow_workers.stores.base import Store, Tally

log = logging.getLogger(__name__)

#: Of a user's waiting jobs, as many of the newest are looked at.
_LOOKED_AT = 10_000


class ShareOperations:
    def __init__(self, store: Store, world: ClusterCache, fair_share: FairShare) -> None:
        self._store = store
        self._world = world
        self._fair_share = fair_share

    def list_shares(self, request: ListShares, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Rows of accounts (without `user`) and of their users; a submitter sees its own."""
        self._fair_share.sync(at_once=True)
        rows = share_rows(self._fair_share)
        if caller.role != "admin":
            rows = [row for row in rows if row["user"] == caller.sub]
        return {"half_life": self._fair_share.half_life, "shares": rows}

    def queue(self, request: ShowQueue, caller: Principal, address: Address | None) -> dict[str, Any]:
        """Rows of users with their jobs; a submitter sees its own, and the totals. Of a waiting job, why it waits."""
        self._fair_share.sync(at_once=True)
        tallies = self._store.jobs.tally()
        due = {(row["account"], row["user"]): row for row in share_rows(self._fair_share, tallies)}
        users = [_user_row(payer, row, tallies) for payer, row in due.items() if None not in payer]
        totals = {
            "waiting": sum(tally.waiting for tally in tallies.values()),
            "running": sum(tally.running for tally in tallies.values()),
        }
        if caller.role != "admin":
            users = [row for row in users if row["user"] == caller.sub]
        found: dict[str, Any] = {"users": users, "totals": totals}
        if request.id is not None:
            waiting = {payer: row["share"] for payer, row in due.items() if payer in tallies and tallies[payer].waiting}
            found["job"] = self._waits(request.id, caller, tallies, waiting)
        return found

    def _waits(
        self, job_id: str, caller: Principal, tallies: Mapping[Payer, Tally], shares: Mapping[Any, float]
    ) -> dict[str, Any] | None:
        """What a waiting job waits for, as far as it is known here; None for one that does not wait. `shares` are those
        of all who have jobs that wait."""
        record = self._store.jobs.get([job_id])[0]
        if record is None or (caller.role != "admin" and record.user != caller.sub):
            raise NotFound(f"no job {job_id} (or it is another user's)")
        if record.state != "held" or record.user is None:
            return None
        payer = record.account or DEFAULT_ACCOUNT, record.user
        mine = self._fair_share.standing(payer)
        before = [p for p, t in tallies.items() if t.waiting and p != payer and self._fair_share.standing(p) < mine]
        own = self._store.jobs.find(state="held", cluster=None, user=record.user, limit=_LOOKED_AT)
        since = record.times.get("submitted", record.times.get("held", 0.0))
        # Those that came in the same moment are as likely before it as behind.
        times = [other.times.get("submitted", other.times.get("held", since)) for other in own if other.id != job_id]
        older = sum(at < since for at in times) + sum(at == since for at in times) // 2
        names = (record.answer or {}).get("clusters", ())
        part = shares.get(payer, 0.0) / sum(shares.values()) if shares else 0.0
        rate = self._ends_per_s(names, record.user) * part
        return {
            "detail": record.detail,
            "clusters": [self._room(name) for name in names],
            "own_before": older,
            "users_before": len(before),
            "starts_in_s": round((older + 1) / rate, 1) if rate and record.code == "waiting" else None,
        }

    def _ends_per_s(self, clusters: Iterable[str], user: str) -> float:
        """How many jobs end there in a second: those that run, over how long jobs ran lately; 0 if none has ended."""
        seconds = self._fair_share.run_time(user)
        with self._world.lock:
            running = [self._world.values(n).get("jobs_running") for n in clusters if n in self._world.clusters]
        return sum(n for n in running if isinstance(n, int) and n > 0) / seconds if seconds else 0.0

    def _room(self, name: str) -> dict[str, Any]:
        with self._world.lock:
            known = self._world.clusters.get(name)
            if known is None:
                return {"name": name, "registered": False}
            load = self._world.load(name)
            free = {"nodes_free": load.free.nodes, "cores_free": load.free.cores, "gpus_free": load.free.gpus}
            return {"name": name, "registered": True, **free, "pending": load.pending}

    def set_share(self, request: SetShare, caller: Principal, address: Address | None) -> dict[str, Any]:
        level, name = _whose(request)
        self._fair_share.sync(at_once=True)
        old = self._fair_share.table.set_by_admin(level, name)
        if request.unset and old is None:
            raise NotFound(f"nothing was set for {level} {name!r} by an administrator")
        if request.terms.empty and not request.unset:
            raise InvalidInput(f"say what to set for {level} {name!r}: a weight or a limit")
        terms = request.terms.over(ShareTerms() if request.unset or old is None else old)
        kept = None if terms.empty else terms.model_dump_json(exclude_none=True)
        self._store.shares.put(name_of(level, name), kept)
        self._fair_share.sync(at_once=True)
        log.info("share set", extra={"action": "share-set", level: name, "by": caller.sub})
        return {level: name, "terms": said(self._fair_share.table.terms(level, name))}


def _whose(request: SetShare) -> tuple[Level, str]:
    if (request.user is None) == (request.account is None):
        raise InvalidInput("name either a user or an account")
    return ("user", request.user) if request.user is not None else ("account", request.account or "")


def said(terms: ShareTerms) -> dict[str, Any]:
    """What is set, as it is answered: null where nothing is."""
    return {name: getattr(terms, name) for name in FIELDS}


def share_rows(fair_share: FairShare, active: Collection[Payer] = ()) -> list[dict[str, Any]]:
    """One row for each account, and below it for each of its users: ``{account, user, weight, share, usage, ...}``.

    `share` is the part of everything that its weight asks for while all of them want more than there is, `usage` the
    part that it had of all that was used lately. `active` are users with jobs, beside those with usage. Users for whom
    something is set, and who are neither, come last, without account and share.
    """
    usage, table = fair_share.usage(), fair_share.table
    total = sum(usage.accounts.values())
    payers = {*usage.users, *active}
    accounts = sorted({*(account for account, _ in payers), *table.names("account")})
    weights = sum(table.weight("account", name) for name in accounts)
    rows: list[dict[str, Any]] = []
    for account in accounts:
        due = table.weight("account", account) / weights
        had = usage.accounts.get(account, 0.0)
        rows.append(_row(table, "account", (account, None), due, had / total if total else 0.0))
        users = sorted(user for name, user in payers if name == account)
        of_account = sum(table.weight("user", user) for user in users)
        for user in users:
            part = due * table.weight("user", user) / of_account
            used = usage.users.get((account, user), 0.0) / total if total else 0.0
            rows.append(_row(table, "user", (account, user), part, used))
    seen = {user for _, user in payers}
    rows += [_row(table, "user", (None, user), None, 0.0) for user in sorted(table.names("user") - seen)]
    return rows


def _user_row(payer: Payer, row: Mapping[str, Any], tallies: Mapping[Payer, Tally]) -> dict[str, Any]:
    tally = tallies.get(payer, Tally())
    shown = {key: row[key] for key in ("account", "user", "weight", "share", "usage")}
    return {**shown, "waiting": tally.waiting, "running": tally.running}


def _row(
    table: ShareTable, level: Level, payer: tuple[str | None, str | None], share: float | None, usage: float
) -> dict[str, Any]:
    account, user = payer
    name = (account if level == "account" else user) or ""
    terms = table.terms(level, name)
    by = "admin" if table.set_by_admin(level, name) is not None else None if terms.empty else "settings"
    limits = {key: value for key, value in said(terms).items() if key != "weight"}
    return {
        "account": account,
        "user": user,
        "weight": table.weight(level, name),
        "share": share,
        "usage": usage,
        **limits,
        "set_by": by,
    }
