"""Latency and batches of a server under Poisson arrivals, by the Markov chain embedded at the ends of its batches.

The state is the age of the first request that waits when a batch ends, or that none does. It is enough: those behind
it arrived after it as a Poisson process, whatever came before, and the policy looks at nothing else. A batch that
takes all that wait begins anew. One that leaves some behind passes on their age: after the first K, who arrive within
an Erlang time, the next comes. So the chain is a convolution plus a term for each batch size; ages lie on a grid,
which is all that is not exact. Service times may have any distribution, and another one after the server was idle.

Inoue (2021, arXiv:1912.06322) bounds the mean without a cap and a delay: tests hold this against it, and against
`simulate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from inferprof.queueing.policy import Curve, Policy, Times
from inferprof.units import NS_PER_S

CELLS_PER_SERVICE: Final = 30
"""Cells of the grid within the shortest service."""
MOST_CELLS: Final = 1 << 12
TAIL: Final = 1e-6
"""Probability of ages beyond the grid that needs no longer one."""
LONGEST: Final = 5000
"""Services that the grid reaches over at most."""
SETTLED: Final = 1e-9
RESTART: Final = 60
MOST_RESTARTS: Final = 20
FULL: Final = 0.99
"""Of the capacity: above it the queue is too long for the grid, and the rate counts as unstable."""


Key = tuple[int, bool]
"""A batch size, and whether the server was idle before."""


class Unstable(ValueError):
    """A rate that a policy cannot carry: the queue grows without end."""


@dataclass(frozen=True)
class Prediction:
    """What a policy comes to at a rate (requests per second)."""

    rate: float
    utilization: float
    """Of the time, the server works."""
    batches: Times
    """The share of batches of size 1, 2, …"""
    times: Times
    masses: Times
    """The distribution of latency: ns, ascending, and the probability of each."""

    @property
    def mean_ns(self) -> float:
        """The mean latency."""
        return float(self.times @ self.masses)

    def percentile(self, percent: float) -> float:
        """The latency that so many percent of the requests are within, ns."""
        place = int(np.searchsorted(np.cumsum(self.masses), percent / 100))
        return float(self.times[min(place, self.times.size - 1)])

    @property
    def mean_batch(self) -> float:
        """Requests per batch."""
        return float(self.batches @ np.arange(1, self.batches.size + 1))


def predict(curve: Curve, policy: Policy, rate: float) -> Prediction:
    """Exact but for the grid. Raises Unstable for a rate beyond the capacity."""
    capacity = curve.capacity(policy.max_batch)
    if rate >= FULL * capacity:
        raise Unstable(f"{rate:.4g} requests/s is beyond what batches of {policy.max_batch} carry, {capacity:.4g}/s")
    means = [times.mean() for state in (curve.times, curve.after_idle) for times in state.values()]
    step = min(means) / CELLS_PER_SERVICE
    services = 6 + 2 / (1 - rate / capacity)
    reach = policy.max_delay_ns + services * max(means)
    while True:
        width = max(step, reach / MOST_CELLS)
        chain = _Chain(curve, policy, rate / NS_PER_S, width, int(reach / width) + 2)
        empty, ages = chain.stationary()
        if ages[-ages.size // 10 :].sum() < TAIL or services > LONGEST:
            return chain.prediction(empty, ages)
        reach, services = 2 * reach, 2 * services


class _Chain:
    """The chain on a grid: cell i is the ages around (i + ½) · step."""

    def __init__(self, curve: Curve, policy: Policy, rate: float, step: float, cells: int) -> None:
        from scipy.special import gammainc
        from scipy.stats import poisson

        self.curve, self.cap, self.delay = curve, policy.max_batch, policy.max_delay_ns
        self.rate, self.step, self.cells = rate, step, cells
        self.ages = (np.arange(cells) + 0.5) * step
        self.young = self.ages < self.delay
        """Those whose first request is waited with, until the delay is over or the batch is full."""

        def erlang(x: Times | float) -> Times:
            """The probability that so many arrive within x that a batch is full with the first one."""
            return np.ones_like(x) if self.cap == 1 else gammainc(self.cap - 1, rate * np.asarray(x))

        self.erlang = erlang
        self.full = erlang(self.ages)
        self.full_by_delay = float(erlang(np.array(self.delay)))
        """Within the delay from the first one's arrival."""
        edges = np.concatenate([[0.0], (np.arange(cells) + 0.5) * step])
        self.filling = np.diff(erlang(edges)) if self.cap > 1 else np.eye(1, cells)[0]
        """The age of the first one, in whole cells, when its batch is full."""
        behind = np.arange(self.cap - 1)[:, None]
        self.joined = poisson.pmf(behind, rate * np.maximum(self.ages, self.delay))
        self.joined_by_delay = poisson.pmf(behind[:, 0], rate * self.delay)
        self.sizes = [curve.bucket(size) for size in range(1, self.cap + 1)]
        self.fresh = {
            (size, idle): self._fresh(curve.service(size, idle=idle))
            for size in dict.fromkeys(self.sizes)
            for idle in (False, True)
        }
        self.size_fft = 1 << int(2 * cells - 1).bit_length()
        self._set_kernel(curve.times[self.sizes[-1]])

    def _fresh(self, times: Times) -> Times:
        """The age of the first arrival within a service, at its end."""
        edges = np.arange(self.cells + 1) * self.step
        total = np.zeros(self.cells + 1)
        for service in times:
            total += np.exp(-self.rate * (service - np.minimum(edges, service)))
        masses: Times = np.diff(total / times.size)
        return masses

    def _set_kernel(self, times: Times) -> None:
        """The transforms of one step from an age to the age behind a full batch: less the time in which the others
        came, more the service, less the time until the next one came."""
        n = self.size_fft
        edges = (np.arange(-n // 2, n // 2 + 1) - 0.5) * self.step
        total = np.zeros(n + 1)
        for service in times:
            total += np.exp(-self.rate * np.maximum(service - edges, 0.0))
        self.later = np.fft.rfft(np.fft.ifftshift(np.diff(total / times.size)))
        self.earlier = np.conj(np.fft.rfft(self.filling, n))

    def _left(self, ages: Times) -> Times:
        """How long the last of a full batch has waited where one starts at once."""
        left: Times = np.fft.irfft(np.fft.rfft(ages, self.size_fft) * self.earlier, self.size_fft)
        return left[: self.cells]

    def starts(self, empty: float, ages: Times) -> tuple[Times, Times, float]:
        """The probability of a batch of each size below the cap that starts at once, of one that starts when the
        delay is over, and of a full one that was waited for."""
        filled = empty * self.full_by_delay + (ages * self.young) @ (self.full_by_delay - self.full)
        young = int(self.young.sum())
        delayed = self.joined[:, :young] @ ages[:young] + empty * self.joined_by_delay
        return self.joined[:, young:] @ ages[young:], delayed, float(filled)

    def following(self, empty: float, ages: Times) -> Times:
        """The probability of each age at the end of the next batch."""
        last = np.fft.rfft(self._left(ages), self.size_fft) * self.later
        ages_next: Times = np.fft.irfft(last, self.size_fft)[: self.cells]
        masses = dict.fromkeys(self.fresh, 0.0)
        at_once, delayed, filled = self.starts(empty, ages)
        for behind, size in enumerate(self.sizes[:-1]):
            masses[size, False] += at_once[behind]
            masses[size, True] += delayed[behind]
        masses[self.sizes[-1], True] += filled
        for key, mass in masses.items():
            ages_next = ages_next + mass * self.fresh[key]
        return ages_next

    def stationary(self) -> tuple[float, Times]:
        """The probabilities of no waiting request and of each age: the linear system by GMRES."""
        from scipy.sparse.linalg import LinearOperator, gmres

        nobody = self.following(1.0, np.zeros(self.cells))

        def residual(ages: Times) -> Times:
            return ages - self.following(-float(ages.sum()), ages)

        operator = LinearOperator((self.cells, self.cells), residual, dtype=float)
        ages, _ = gmres(operator, nobody, rtol=SETTLED, restart=RESTART, maxiter=MOST_RESTARTS)
        ages = np.maximum(ages, 0.0)
        return max(0.0, 1 - float(ages.sum())), ages

    # --- what the requests see -------------------------------------------------------------------------------

    def prediction(self, empty: float, ages: Times) -> Prediction:
        """Latency is what a request waited until its batch started, and the service of that batch."""
        part, delayed, filled = self.starts(empty, ages)
        at_once = float(ages @ self.full)
        began = {False: np.array([*part, at_once]), True: np.array([*delayed, filled])}
        shares = began[False] + began[True]
        waits = {key: np.zeros(self.cells) for key in self.fresh}
        none = dict.fromkeys(self.fresh, 0.0)
        for behind in range(self.cap - 1):
            waits[self.sizes[behind], False] += self._left_over(behind, ages)
            waits[self.sizes[behind], True] += self._delayed(behind, empty, ages)
        waits[self.sizes[-1], False] += self._at_once(ages)
        waits[self.sizes[-1], True] += self._filled(empty, ages, filled)
        none[self.sizes[-1], True] += filled
        if not self.delay and self.cap > 1:
            none[self.sizes[0], True] += empty
        times, masses = self._latency(waits, none)
        requests = float(shares @ np.arange(1, self.cap + 1))
        means = {idle: np.array([self.curve.mean(size, idle=idle) for size in self.sizes]) for idle in began}
        busy = sum(float(began[idle] @ means[idle]) for idle in began)
        return Prediction(
            rate=self.rate * NS_PER_S,
            utilization=float(self.rate * busy / requests),
            batches=shares / shares.sum(),
            times=times,
            masses=masses / masses.sum(),
        )

    def _left_over(self, behind: int, ages: Times) -> Times:
        """Waits of a batch that was not full and starts at once: the first one waited longest, the others as long as
        chance has it."""
        of_age = ages * self.joined[behind] * ~self.young
        return np.asarray(of_age + behind * self._uniform(of_age))

    def _delayed(self, behind: int, empty: float, ages: Times) -> Times:
        """The same of one that starts when the delay is over."""
        if not self.delay:
            return np.zeros(self.cells)
        mass = float((ages * self.young).sum() + empty) * self.joined_by_delay[behind]
        return np.asarray(mass * (self._at(self.delay) + behind * self._uniform_to(self.delay)))

    def _filled(self, empty: float, ages: Times, mass: float) -> Times:
        """Waits of a batch that became full while it was waited for, but of its last one, which did not wait."""
        if self.cap == 1 or not self.delay:
            return np.zeros(self.cells)
        edges = np.minimum(np.arange(self.cells + 1) * self.step, self.delay)
        younger = empty + np.cumsum(ages) - ages / 2
        first = np.diff(self.erlang(edges)) * younger
        first *= mass / first.sum() if first.sum() > 0 else 0.0
        return np.asarray(first + (self.cap - 2) * self._uniform(first))

    def _at_once(self, ages: Times) -> Times:
        """Waits of a full batch that was there when the batch before ended."""
        if self.cap == 1:
            return ages
        waits = ages * self.full + self._left(ages)
        if self.cap == 2:
            return waits
        weights = self.filling.copy()
        weights[1:] /= np.arange(1, self.cells)
        weights[0] = 0.0
        n = 2 * self.size_fft
        total = np.cumsum(ages)
        below = np.concatenate([total - ages / 2, np.full(n - self.cells, total[-1])])
        older = np.fft.irfft(np.fft.rfft(below) * np.conj(np.fft.rfft(weights, n)), n)[: self.cells]
        # Below a filling time no batch is full: what it takes from the ages begins there.
        missed = weights * np.concatenate([[0.0], total[:-1]])
        younger = below[: self.cells] * np.cumsum(weights) + missed.sum() - np.cumsum(missed)
        between = np.maximum(older - younger, 0.0)
        wanted = float(ages @ self.full)
        return np.asarray(waits + (self.cap - 2) * between * (wanted / between.sum() if between.sum() > 0 else 0.0))

    def _uniform(self, masses: Times) -> Times:
        """Each mass at an age spread evenly from 0 to that age."""
        per_cell = masses * self.step / self.ages
        above: Times = per_cell[::-1].cumsum()[::-1] - per_cell / 2
        return above

    def _uniform_to(self, end: float) -> Times:
        edges = np.minimum(np.arange(self.cells + 1) * self.step, end)
        spread: Times = np.diff(edges) / end
        return spread

    def _at(self, value: float) -> Times:
        """A mass of 1 at a value, shared by the two cells around it so that the mean stays."""
        place = value / self.step - 0.5
        cells = np.zeros(self.cells)
        low = max(int(np.floor(place)), 0)
        share = min(max(place - low, 0.0), 1.0)
        cells[low], cells[low + 1] = 1 - share, share
        return cells

    def _latency(self, waits: dict[Key, Times], none: dict[Key, float]) -> tuple[Times, Times]:
        """Waits and services added up: times and masses, ascending."""
        n = 2 * self.size_fft
        total, at_zero = np.zeros(n), np.zeros(n)
        for key, cells in waits.items():
            size, idle = key
            service = np.zeros(n)
            places = self.curve.service(size, idle=idle) / self.step
            low = places.astype(int)
            np.add.at(service, low, (1 - (places - low)) / places.size)
            np.add.at(service, low + 1, (places - low) / places.size)
            total += np.fft.irfft(np.fft.rfft(cells, n) * np.fft.rfft(service), n)
            at_zero += none[key] * service
        times = np.concatenate([(np.arange(n) + 0.5) * self.step, np.arange(n) * self.step])
        masses = np.maximum(np.concatenate([total, at_zero]), 0.0)
        order = np.argsort(times, kind="stable")
        keep = order[masses[order] > 0]
        return times[keep], masses[keep]
