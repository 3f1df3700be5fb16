"""The Shares of a MemoryStore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rainbow_workers.stores.memory_data import Data


class MemoryShares:
    """See `rainbow_workers.stores.base.Shares`."""

    def __init__(self, data: Data) -> None:
        self._data = data

    def charge(self, amounts: Mapping[str, float], period: int, keep: float) -> None:
        with self._data.lock:
            sums = self._data.usage.setdefault(period, {})
            for user, amount in amounts.items():
                sums[user] = sums.get(user, 0.0) + amount

    def usage(self, periods: Sequence[int]) -> list[dict[str, float]]:
        with self._data.lock:
            self._data.usage = {p: sums for p, sums in self._data.usage.items() if p >= min(periods)}
            return [dict(self._data.usage.get(period, {})) for period in periods]

    def ran(self, seconds: Mapping[str, float]) -> None:
        with self._data.lock:
            self._data.run_times.update(seconds)

    def run_times(self) -> dict[str, float]:
        with self._data.lock:
            return dict(self._data.run_times)

    def submitted(self, name: str, count: int, window: int, seconds: float) -> int:
        with self._data.lock:
            known, total = self._data.submitted.get(name, (window, 0))
            total = count + (total if known == window else 0)
            self._data.submitted[name] = window, total
            return total

    def put(self, name: str, terms: str | None) -> None:
        with self._data.lock:
            if terms is None:
                self._data.terms.pop(name, None)
            else:
                self._data.terms[name] = terms

    def terms(self) -> dict[str, str]:
        with self._data.lock:
            return dict(self._data.terms)
