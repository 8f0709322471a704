"""Prefill and decode of models with a KV cache: how far from the roofs, bound by what, and what they add up to.

An inference at batch b, of p tokens behind a context of c, moves its weights and the cache at least once and computes
the model's products, so that it takes no less than

    max((weights + cache read + cache written) / bandwidth, FLOPs / peak)

A step takes as long as `call`: from the host's call until it has the result on the device. With T(c) of decode steps:

    TTFT          the prefill of the prompt
    ITL           T(c): from one token of a request to its next
    TPOT          (E2E - TTFT) / (n - 1) of n tokens, where E2E = TTFT + the ITLs of all contexts from p on
    tokens/s      b / ITL of a decode step, b · n / E2E of requests

without queue, sampling and text. Between two measured contexts T is taken for linear.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd

from inferprof.case import BATCH, QUANTIZE, REFERENCE, Shape
from inferprof.documents.record import Operation
from inferprof.grouping import grouped
from inferprof.tables.limits.saturation import Regime
from inferprof.tables.records import KEY, Key, Options, key_of, options_of, paired_without, rows_of
from inferprof.tables.roofs import KINDS, Roofs

BOUNDARY: Final = "call"
GRAPHS: Final = ("cuda_graph", "compile_mode")
"""Options that put a step into one launch; torch.compile's modes but the first do."""
LAUNCH_SHARE: Final = 0.1
"""A step of which a graph takes this share waits for the host."""
REACHED: Final = 0.5
"""A step that takes more than twice what its roof asks for is bound by something else."""
PRODUCTS: Final[Mapping[Any, str]] = {"float8_dynamic": KINDS["float8e4m3fn"]}
"""Quantizers whose products are in another format than the case's."""
NARROWED: Final[Mapping[str, tuple[int | None, int | None]]] = {
    "w8": (8, None),
    "w4": (4, None),
    "kv8": (None, 8),
    "w4_kv8": (4, 8),
}
"""Name → bits of the weights and of the cache; None: as they are."""
_BITS: Final = {REFERENCE: 32}
_OTHERS: Final = 16
Op = Literal["prefill", "decode", "chunk"]


@dataclass(frozen=True)
class Step:
    """An inference that was measured. Roofs that are not known are None."""

    key: Key
    batch: int
    operation: Operation
    ns: float
    low_ns: float | None
    high_ns: float | None
    bandwidth: float | None
    peak: float | None
    quantized: bool = False
    launches: bool = False
    """Whether the host launches its kernels one by one: on a GPU, without a CUDA graph."""
    graphed_ns: float | None = None
    """The same with a CUDA graph, of a step without one."""

    @property
    def op(self) -> Op:
        """What a server calls it."""
        if not self.operation.context:
            return "prefill"
        return "decode" if self.operation.tokens == 1 else "chunk"

    @property
    def series(self) -> Key:
        """The case without its shape."""
        return self.key[:-1]

    @property
    def cache_bytes(self) -> int:
        """What the cache holds at its end."""
        return self.operation.kv_read + self.operation.kv_written

    @property
    def memory_ns(self) -> float | None:
        """What moving weights and cache takes at least."""
        return self.moving_ns(1.0, 1.0)

    def moving_ns(self, weights: float, cache: float) -> float | None:
        """The same with so much of the bytes of the weights and of the cache."""
        moved = self.operation.weights_read * weights + self.cache_bytes * cache
        return None if self.bandwidth is None else moved / self.bandwidth * 1e9

    @property
    def compute_ns(self) -> float | None:
        """What its FLOPs take at least."""
        flops = self.operation.flops
        return None if self.peak is None or flops is None else flops / self.peak * 1e9

    @property
    def roof(self) -> tuple[Literal["memory", "compute"], float] | None:
        """The higher of the two, in ns; None where one is not known."""
        memory, compute = self.memory_ns, self.compute_ns
        if memory is None or compute is None:
            return None
        return ("memory", memory) if memory >= compute else ("compute", compute)

    @property
    def bound(self) -> Regime:
        """launch: a graph takes LAUNCH_SHARE of it and more. Else its roof, where REACHED of that is reached. Else
        neither, unless it launches and no graph was measured."""
        if self.graphed_ns is not None and self.ns - self.graphed_ns >= LAUNCH_SHARE * self.ns:
            return "launch"
        roof = self.roof
        if roof is not None and roof[1] >= REACHED * self.ns:
            return roof[0]
        return "not told" if roof is None or (self.launches and self.graphed_ns is None) else "neither"

    @property
    def compute_from(self) -> int | None:
        """The batch from which on computing takes longer than moving; None: never, the cache grows, too."""
        memory, compute, weights = self.memory_ns, self.compute_ns, self.moving_ns(1.0, 0.0)
        if memory is None or compute is None or weights is None:
            return None
        each = (compute - (memory - weights)) / self.batch
        return None if each <= 0 else max(1, -int(-weights // each))

    def tokens_per_s(self, batch: int | None, cache: float = 1.0) -> float | None:
        """What a batch carries at the roofs, None: any number of rows; with so much of the bytes of the cache."""
        memory, compute = self.moving_ns(0.0, cache / self.batch), self.compute_ns
        weights = self.moving_ns(1.0, 0.0)
        if memory is None or weights is None or compute is None:
            return None
        if batch is None:
            return 1e9 / max(memory, compute / self.batch)
        return batch * 1e9 / max(weights + batch * memory, batch * compute / self.batch)

    def gain(self, name: str) -> float | None:
        """The speed-up of NARROWED weights and cache where the same share of the roof is reached: at most that."""
        roof, (weights, cache) = self.roof, NARROWED[name]
        if roof is None or (weights and self.quantized):
            return None
        now = _BITS.get(self.key[KEY.index("precision")], _OTHERS)
        moving = self.moving_ns((weights or now) / now, (cache or now) / now)
        return roof[1] / max(moving or 0.0, self.compute_ns or 0.0)


def steps(records: pd.DataFrame, latency: pd.DataFrame, roofs: Roofs) -> list[Step]:
    """Those of all cases with a cache, in their order. records: those that are ok; latency: summary.latency."""
    times = {
        key_of(row): row for row in rows_of(latency[latency["boundary"].eq(BOUNDARY) & latency["median"].notna()])
    }
    options = options_of(records)
    graphed = _graphed(options, {key: row["median"] for key, row in times.items()})
    operations = {key_of(row): row["record"].operation for row in rows_of(records) if row["record"].operation}
    bandwidth = roofs.bandwidth.value if roofs.bandwidth else None
    on_gpu = {key_of(row) for row in rows_of(latency[latency["boundary"].eq("device") & latency["median"].notna()])}
    return [
        Step(
            key,
            Shape.parse(key[-1]).batch,
            operation,
            ns=times[key]["median"],
            low_ns=times[key]["low"],
            high_ns=times[key]["high"],
            bandwidth=bandwidth,
            peak=_peak(key, options[key], roofs),
            quantized=QUANTIZE in options[key],
            launches=key in on_gpu and not _is_graph(options[key]),
            graphed_ns=graphed.get(key),
        )
        for key, operation in operations.items()
        if key in times
    ]


def _graphed(options: Options, times: Mapping[Key, float]) -> dict[Key, float]:
    """Case without a graph → the least time of the same with one."""
    least: dict[Key, float] = {}
    for option in GRAPHS:
        for key, others in paired_without(option, options).items():
            if _is_graph(options[key]) and key in times:
                for other in others:
                    least[other] = min(times[key], least.get(other, times[key]))
    return least


def _is_graph(options: Mapping[str, Any]) -> bool:
    return any(options.get(option) not in (None, False, "default") for option in GRAPHS)


def _peak(key: Key, options: Mapping[str, Any], roofs: Roofs) -> float | None:
    precision = key[KEY.index("precision")]
    narrow = "tf32" if precision == REFERENCE and options.get("tf32") else precision
    roof = roofs.flops.get(PRODUCTS.get(options.get(QUANTIZE), narrow))
    return roof.value if roof else None


# --- requests --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Requests:
    """A batch of requests served alone, from its prompt to the next measured context; times in ns."""

    prefill: Step
    first: Step
    last: Step

    @property
    def new_tokens(self) -> int:
        """Of each request: that of the prefill, and one of each step."""
        return self.last.operation.context - self.first.operation.context + 1

    @property
    def tpot_ns(self) -> float:
        """The mean of the ITLs at the contexts from the prompt on, without the last."""
        spread = self.last.operation.context - self.first.operation.context
        return self.first.ns + (self.last.ns - self.first.ns) * (spread - 1) / 2 / spread

    @property
    def e2e_ns(self) -> float:
        """TTFT and all ITLs."""
        return self.prefill.ns + (self.new_tokens - 1) * self.tpot_ns

    @property
    def tokens_per_s(self) -> float:
        """New tokens of all requests of the batch over E2E."""
        return self.first.batch * self.new_tokens / self.e2e_ns * 1e9


def requests(measured: Iterable[Step]) -> Iterator[Requests | tuple[Step, str]]:
    """For each prefill what a batch of such requests takes, or the prefill and why that is not known."""
    series = grouped(((*step.series, step.batch), step) for step in measured)
    for alike in series.values():
        by_context = {step.operation.context: step for step in alike if step.op == "decode"}
        for prefill in (step for step in alike if step.op == "prefill"):
            prompt = prefill.operation.tokens
            longer = min((context for context in by_context if context > prompt), default=None)
            batch = f"{BATCH}{prefill.batch}_c"
            if prompt not in by_context:
                yield prefill, f"a decode step behind the prompt: {batch}{prompt}"
            elif longer is None:
                yield prefill, f"a decode step behind a longer context: {batch}{2 * prompt}"
            else:
                yield Requests(prefill, by_context[prompt], by_context[longer])


# --- what binds ------------------------------------------------------------------------------------------------


def turns(measured: Iterable[Step]) -> Iterator[tuple[Key, int, Sequence[tuple[int, Regime]]]]:
    """(series, context, [(batch, what binds)]) of the decode steps of two batches and more."""
    decoding = sorted(
        (step for step in measured if step.op == "decode"),
        key=lambda step: (step.series, step.operation.context, step.batch),
    )
    for (series, context), alike in itertools.groupby(decoding, key=lambda s: (s.series, s.operation.context)):
        by_batch = [(step.batch, step.bound) for step in alike]
        if len(by_batch) > 1:
            yield series, context, by_batch
