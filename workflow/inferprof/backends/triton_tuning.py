"""What Triton's autotuners try in this process: every configuration with its time, and what a launch of it takes.

Triton keeps the timings of an autotuner's last decision alone and tells nobody of them. So the methods that only run
when a choice has to be made are watched: `prune_configs`, `_bench` and `check_disk_cache` of
triton.runtime.autotuner.Autotuner, as they are in 3.6. A launch whose choice is made is not touched. torch.compile's
templates are chosen by Inductor, whose autotuner is another one: nothing is recorded of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from inferprof.allowed import TEXT, Option
from inferprof.backends import torch_gemlite
from inferprof.case import TUNED_ANEW, TUNED_BY_LIBRARY, TUNING, Variant
from inferprof.documents.record import Trial, Tuning
from inferprof.units import MEGA, NS_PER_MS

Source = Literal["tried", "one left", "remembered", "disk"]
"""Where a choice comes from: several configurations were timed; pruning left one (a library's own cache); the caller
gave it; Triton's cache on disk (TRITON_CACHE_AUTOTUNING)."""
OPTION: Final[Mapping[str, Option]] = {
    TUNING: Option(
        "torch: source of the configurations of Triton's autotuned kernels: "
        f"`{TUNED_BY_LIBRARY}`, those that it ships, else tuned (the default); `{TUNED_ANEW}`, all are tuned and "
        "compiled; `VARIANT` or `VARIANT/SHAPE`, those in the record of that case. With the option, runs under a "
        "profiler use the choices of the bare run",
        TEXT,
    )
}
CACHE: Final = "TRITON_CACHE_DIR"
MODULE: Final = "triton.runtime.autotuner"
DTYPE_KEY: Final = "dtypes"
MEDIAN: Final = 0
"""Where the median stands in what Autotuner._bench returns: its quantiles are 0.5, 0.2 and 0.8."""


@dataclass
class Decision:
    """One choice of an autotuner: for a kernel at a key, out of `offered` configurations."""

    kernel: str
    key: Mapping[str, Any]
    offered: int
    source: Source = "tried"
    trials: list[Trial] = field(default_factory=list)

    @property
    def winner(self) -> int:
        """The first of the fastest, as Triton takes it."""
        return min(range(len(self.trials)), key=lambda place: self.trials[place].median_ns or math.inf)

    def record(self) -> dict[str, Any]:
        """The entry of the record: `winner` is a place in `trials`."""
        seconds = sum(trial.seconds for trial in self.trials)
        return {**vars(self), "trials": msgspec.to_builtins(self.trials), "winner": self.winner, "seconds": seconds}


@dataclass
class Watch:
    """What was decided so far, in order, and what is to be taken over instead of trying."""

    remembered: Sequence[Tuning] = ()
    """Entries of another record's `tuning`."""
    decisions: list[Decision] = field(default_factory=list)
    clock: Callable[[], float] = time.perf_counter

    def record(self) -> list[dict[str, Any]]:
        """The choices that were made by timing."""
        return [decision.record() for decision in self.decisions if decision.trials]

    def pruned(self, tuner: Any, keywords: Mapping[str, Any], left: Sequence[Any]) -> list[Any]:
        """A choice begins. Gives the configurations to time: what pruning left, or the remembered one."""
        decision = Decision(str(tuner.base_fn.__name__), key_of(tuner, keywords), len(tuner.configs))
        self.decisions.append(decision)
        if (config := self._known(decision)) is not None:
            decision.source = "remembered"
            return [_configuration(config, left)]
        decision.source = "one left" if len(left) == 1 else "tried"
        return list(left)

    def _known(self, decision: Decision) -> Mapping[str, Any] | None:
        """The remembered configuration of the kernel, at the key that differs least; None where there is none."""
        same = [entry for entry in self.remembered if entry.kernel == decision.kernel]
        if not same:
            return None
        nearest = min(
            same, key=lambda entry: sum(decision.key.get(name) != value for name, value in entry.key.items())
        )
        config: Mapping[str, Any] = nearest.trials[nearest.winner].config
        return config

    def tried(self, trial: Trial, timings: Any) -> None:
        """A configuration was timed: Triton's medians in ms, infinite where it does not compile or fit."""
        median = timings[MEDIAN] if isinstance(timings, Sequence) else timings
        trial.median_ns = median * NS_PER_MS if math.isfinite(median) else None
        self.decisions[-1].trials.append(trial)

    def on_disk(self, tuner: Any) -> None:
        """Triton's disk cache knew the choice."""
        decision = self.decisions[-1]
        decision.source = "disk"
        for config, timings in tuner.configs_timings.items():
            self.tried(Trial(_plain(config.all_kwargs())), timings)


@contextlib.contextmanager
def tuned(variant: Variant, remembered: Sequence[Tuning]) -> Iterator[Watch]:
    """Watch the autotuners of a variant. `tuning: fresh`: nothing is known before, neither choices nor kernels."""
    with contextlib.ExitStack() as stack:
        if variant.options.get(TUNING) == TUNED_ANEW:
            stack.enter_context(_empty_cache())
            if torch_gemlite.PACKAGE in sys.modules:
                torch_gemlite.forget_shipped()
        yield stack.enter_context(watched(remembered))


@contextlib.contextmanager
def _empty_cache() -> Iterator[None]:
    """Let Triton keep the kernels that it compiles in a folder of this run alone."""
    before = os.environ.get(CACHE)
    with tempfile.TemporaryDirectory(prefix="triton-") as folder:
        os.environ[CACHE] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ[CACHE]
            else:
                os.environ[CACHE] = before


@contextlib.contextmanager
def watched(remembered: Sequence[Tuning] = ()) -> Iterator[Watch]:
    """Watch Triton's autotuners as long as this is open. Nothing to watch where nobody imported Triton."""
    watch = Watch(remembered)
    module = sys.modules.get(MODULE)
    if module is None:
        yield watch
        return
    tuner = module.Autotuner
    with contextlib.ExitStack() as stack:
        for name, wrap in (("prune_configs", _pruning), ("_bench", _timing), ("check_disk_cache", _looking_up)):
            original = getattr(tuner, name)
            setattr(tuner, name, wrap(original, watch))
            stack.callback(setattr, tuner, name, original)
        yield watch


def key_of(tuner: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """The key of a choice by name, as Autotuner.run makes it: values of arguments, then the dtypes of all tensors."""
    arguments = {**tuner.nargs, **keywords}
    named = {name: value for name, value in arguments.items() if name in tuner.arg_names}
    key = _plain({name: named[name] for name in tuner.keys if name in named})
    dtypes = [str(value.dtype) for value in named.values() if hasattr(value, "dtype")]
    return {**key, DTYPE_KEY: dtypes}


# --- in the place of Autotuner's methods -----------------------------------------------------------------------


def _pruning(original: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    @functools.wraps(original)
    def prune_configs(self: Any, kwargs: dict[str, Any]) -> list[Any]:
        return watch.pruned(self, kwargs, list(original(self, kwargs)))

    return prune_configs


def _timing(original: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    @functools.wraps(original)
    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        trial = Trial(_plain(config.all_kwargs()))
        launched = _Launched(self.fn)
        self.fn = launched
        start = watch.clock()
        try:
            with _compile_times(trial):
                timings = original(self, *args, config=config, **meta)
        finally:
            self.fn = launched.inner
        trial.seconds = watch.clock() - start
        _describe(trial, launched.kernel, meta.get("grid"), {**(self.nargs or {}), **meta, **config.all_kwargs()})
        watch.tried(trial, timings)
        return timings

    return bench


def _looking_up(original: Callable[..., Any], watch: Watch) -> Callable[..., Any]:
    @functools.wraps(original)
    def check_disk_cache(self: Any, *args: Any, **kwargs: Any) -> Any:
        hit = original(self, *args, **kwargs)
        if hit:
            watch.on_disk(self)
        return hit

    return check_disk_cache


class _Launched:
    """A kernel that remembers what it was compiled to."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.kernel: Any = None

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.kernel = self.inner.run(*args, **kwargs)
        return self.kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@contextlib.contextmanager
def _compile_times(trial: Trial) -> Iterator[None]:
    """Add up what Triton compiles meanwhile; what lies in its cache of kernels already is no compilation."""
    knobs = sys.modules.get("triton.knobs")
    if knobs is None:  # before 3.4
        yield
        return
    before = knobs.compilation.listener

    def compiled(**facts: Any) -> None:
        if not facts["cache_hit"]:
            trial.compiled = (trial.compiled or 0) + 1
            trial.compile_s += facts["times"].total / MEGA  # the times of its compiler are in µs
        if before is not None:
            before(**facts)

    knobs.compilation.listener = compiled
    try:
        yield
    finally:
        knobs.compilation.listener = before


def _describe(trial: Trial, kernel: Any, grid: Any, arguments: Mapping[str, Any]) -> None:
    """What a launch of the configuration takes of an SM. Nothing of a kernel that never ran."""
    if getattr(kernel, "function", None) is None:
        return
    trial.programs = _blocks(grid, arguments)
    trial.warps = kernel.metadata.num_warps
    trial.registers, trial.spills = kernel.n_regs, kernel.n_spills
    trial.shared_bytes = kernel.metadata.shared
    threads = kernel.metadata.num_warps * kernel.metadata.warp_size
    trial.blocks_per_sm, sms, most_threads = _of_sms(kernel, threads)
    trial.occupancy = trial.blocks_per_sm * threads / most_threads
    if trial.programs is not None and trial.blocks_per_sm:
        trial.waves = trial.programs / (sms * trial.blocks_per_sm)


def _blocks(grid: Any, arguments: Mapping[str, Any]) -> int | None:
    """Blocks of a launch; None where the grid asks for what only Triton's heuristics know."""
    try:
        return int(math.prod(grid(dict(arguments)) if callable(grid) else grid))
    except KeyError:
        return None


def _of_sms(kernel: Any, threads: int) -> tuple[int, int, int]:
    """How many blocks of the kernel an SM holds, how many SMs there are, and how many threads one holds."""
    from cuda.bindings import driver

    def asked(call: Callable[..., Any], *arguments: Any) -> Any:
        status, answer = call(*arguments)
        if status != driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{call.__name__}: {status.name}")
        return answer

    blocks = asked(
        driver.cuOccupancyMaxActiveBlocksPerMultiprocessor,
        driver.CUfunction(kernel.function),
        threads,
        kernel.metadata.shared,
    )
    kinds = driver.CUdevice_attribute
    device = asked(driver.cuCtxGetDevice)
    sms = asked(driver.cuDeviceGetAttribute, kinds.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
    most = asked(driver.cuDeviceGetAttribute, kinds.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device)
    return int(blocks), int(sms), int(most)


# --- configurations --------------------------------------------------------------------------------------------


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON has them; what it has no word for, such as a type of Triton's, by its name."""
    return {
        name: value if value is None or isinstance(value, bool | int | float | str) else str(value)
        for name, value in values.items()
    }


def _configuration(config: Mapping[str, Any], left: Sequence[Any]) -> Any:
    """The one of `left` that has these settings, else a new one with the hook that those have before a launch.

    A kernel that adds into its output has a hook that empties it; it does no harm where it is not needed.
    """
    for candidate in left:
        if _plain(candidate.all_kwargs()) == config:
            return candidate
    like = next((hooked for hooked in left if hooked.pre_hook is not None), left[0])
    launch = {name: config[name] for name in ("num_warps", "num_stages", "num_ctas", "maxnreg") if name in config}
    own = {name: value for name, value in config.items() if name not in launch}
    return type(like)(own, **launch, pre_hook=like.pre_hook)
