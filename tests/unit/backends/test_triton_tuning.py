"""On Triton's own Autotuner where it is installed, and on a stand-in with the methods that are watched."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from inferprof.backends import triton_tuning
from inferprof.backends.triton_tuning import watched
from inferprof.documents.record import Trial, Tuning

MS: dict[tuple[Any, ...], float] = {(16, 4): 0.5, (32, 4): 0.2, (64, 8): math.inf, (64, 4): 0.3}
"""(BLOCK, num_warps) → the median that its benchmark gives, ms."""


class Config:
    """As triton.Config, as far as it is looked at."""

    def __init__(self, kwargs: dict[str, Any], num_warps: int = 4, num_stages: int = 3, **more: Any) -> None:
        self.kwargs, self.num_warps, self.num_stages = kwargs, num_warps, num_stages
        self.pre_hook = more.get("pre_hook")

    def all_kwargs(self) -> dict[str, Any]:
        return {**self.kwargs, "num_warps": self.num_warps, "num_stages": self.num_stages}


class Autotuner:
    """The part of Triton 3.6's Autotuner that chooses."""

    def __init__(
        self, fn: Any, arg_names: list[str], configs: list[Any], key: list[str], *hooks: Any, **more: Any
    ) -> None:
        self.fn, self.arg_names, self.configs, self.keys = fn, arg_names, configs, key
        self.base_fn = fn.fn
        self.cache: dict[tuple[Any, ...], Any] = {}
        self.nargs: dict[str, Any] | None = None
        self.prune = (more.get("prune_configs_by") or {}).get("early_config_prune")
        self.do_bench = more["do_bench"]
        self.cache_results = more.get("cache_results", False)

    def prune_configs(self, kwargs: dict[str, Any]) -> list[Any]:
        return list(self.prune(self.configs, self.nargs, **kwargs)) if self.prune else self.configs

    def check_disk_cache(self, key: Any, configs: Any, bench: Any) -> bool:
        bench()
        return False

    def _bench(self, *args: Any, config: Any, **meta: Any) -> Any:
        call = {**meta, **config.all_kwargs()}
        return self.do_bench(lambda: self.fn.run(*args, **call), quantiles=(0.5, 0.2, 0.8))

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        key = tuple(self.nargs[name] for name in self.keys)
        if key not in self.cache:
            configs = self.prune_configs(kwargs)

            def bench() -> None:
                timings = {config: self._bench(*args, config=config, **kwargs) for config in configs}
                self.cache[key] = min(timings, key=lambda one: timings[one])
                self.configs_timings = timings

            if self.cache_results:
                self.check_disk_cache(key, configs, bench)
            else:
                bench()
        found = self.fn.run(*args, **kwargs, **self.cache[key].all_kwargs())
        self.nargs = None
        return found


def scale_kernel(x: Any, m: int, n: int) -> None:
    """What the kernel is named by."""


class Kernel:
    """A kernel that compiles to nothing, and remembers what it was launched with."""

    fn = staticmethod(scale_kernel)

    def __init__(self) -> None:
        self.launches: list[tuple[int, int]] = []

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.launches.append((kwargs["BLOCK"], kwargs["num_warps"]))
        if kwargs.get("num_warps") == 8:
            return None
        metadata = SimpleNamespace(num_warps=4, warp_size=32, shared=1024)
        return SimpleNamespace(function=1, n_regs=40, n_spills=0, metadata=metadata)


@pytest.fixture(params=["stand-in", "triton"])
def triton(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the autotuner."""
    monkeypatch.setattr(triton_tuning, "_of_sms", lambda kernel, threads: (8, 2, 2048))
    if request.param == "triton":
        yield pytest.importorskip("triton.runtime.autotuner")
        return
    module = ModuleType(triton_tuning.MODULE)
    module.__dict__.update(Autotuner=Autotuner, Config=Config)
    monkeypatch.setitem(sys.modules, triton_tuning.MODULE, module)
    yield module


@pytest.fixture
def tuner(triton: Any) -> Callable[..., Any]:
    """An autotuner of four configurations, of which one fails."""

    def make(**more: Any) -> Any:
        kernel = Kernel()

        def do_bench(call: Callable[[], None], quantiles: Any) -> list[float]:
            call()
            return [MS[kernel.launches[-1]]] * 3

        configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in MS]
        arguments = (kernel, ["x", "m", "n"], configs, ["m", "n"], None, None)
        return triton.Autotuner(*arguments, **{"do_bench": do_bench, **more})

    return make


def launch(tuner: Any, m: int) -> None:
    tuner.run(SimpleNamespace(dtype="float16"), m, 4096, grid=lambda meta: (m // meta["BLOCK"], 2), warmup=False)


def test_a_choice_is_recorded_with_every_configuration_and_its_time(tuner: Callable[..., Any]) -> None:
    with watched() as watch:
        launch(tuner(), 64)
    (found,) = watch.record()
    assert found["kernel"] == "scale_kernel"
    assert found["key"] == {"m": 64, "n": 4096, "dtypes": ["float16"]}
    assert (found["offered"], found["source"], found["winner"]) == (4, "tried", 1)
    tried = [(one["config"]["BLOCK"], one["config"]["num_warps"], one["median_ns"]) for one in found["trials"]]
    assert tried == [(16, 4, 500_000.0), (32, 4, 200_000.0), (64, 8, None), (64, 4, 300_000.0)]
    assert found["seconds"] == sum(one["seconds"] for one in found["trials"]) > 0


def test_a_trial_says_what_a_launch_takes_of_an_sm_if_there_was_one(
    tuner: Callable[..., Any],
) -> None:
    with watched() as watch:
        launch(tuner(), 64)
    first, _, failed, _ = watch.record()[0]["trials"]
    facts = ("programs", "warps", "registers", "spills", "shared_bytes", "blocks_per_sm", "occupancy", "waves")
    assert [first[name] for name in facts] == [8, 4, 40, 0, 1024, 8, 0.5, 0.5]
    assert [failed[name] for name in facts] == [None] * 8


def test_a_grid_that_asks_for_what_heuristics_know_has_no_number_of_blocks(tuner: Callable[..., Any]) -> None:
    with watched() as watch:
        tuner().run(SimpleNamespace(dtype="float16"), 64, 4096, grid=lambda meta: (meta["EVEN"],), warmup=False)
    first = watch.record()[0]["trials"][0]
    assert (first["programs"], first["waves"], first["occupancy"]) == (None, None, 0.5)


def test_a_choice_that_is_made_is_not_recorded_again(tuner: Callable[..., Any]) -> None:
    one = tuner()
    with watched() as watch:
        launch(one, 64)
        launch(one, 64)
        launch(one, 128)
    assert [found["key"]["m"] for found in watch.record()] == [64, 128]


def test_what_pruning_left_alone_is_told_from_what_was_tried(tuner: Callable[..., Any]) -> None:
    pruned = tuner(prune_configs_by={"early_config_prune": lambda configs, nargs, **more: [configs[3]]})
    with watched() as watch:
        launch(pruned, 64)
    (found,) = watch.record()
    assert (found["source"], found["offered"], len(found["trials"])) == ("one left", 4, 1)


def test_a_remembered_choice_is_taken_without_trying(tuner: Callable[..., Any]) -> None:
    with watched() as first:
        launch(tuner(), 64)
    again = tuner()
    with watched(msgspec.convert(first.record(), list[Tuning])) as second:
        launch(again, 64)
    (found,) = second.record()
    assert (found["source"], len(found["trials"]), found["trials"][0]["config"]["BLOCK"]) == ("remembered", 1, 32)
    assert again.fn.launches == [(32, 4), (32, 4)]  # timed, and run


def chosen(kernel: str, key: dict[str, Any], config: dict[str, Any]) -> Tuning:
    """A choice out of a record, of one configuration."""
    return Tuning(kernel, key, source="tried", offered=1, seconds=0.1, winner=0, trials=[Trial(config)])


def test_another_key_takes_over_the_choice_at_the_nearest_one(tuner: Callable[..., Any]) -> None:
    config = {"BLOCK": 64, "num_warps": 4, "num_stages": 3}
    far = chosen("scale_kernel", {"m": 8, "n": 8192, "dtypes": ["float16"]}, {**config, "BLOCK": 16})
    near = chosen("scale_kernel", {"m": 8, "n": 4096, "dtypes": ["float16"]}, config)
    with watched([far, near]) as watch:
        launch(tuner(), 64)
    assert watch.record()[0]["trials"][0]["config"]["BLOCK"] == 64


def test_a_configuration_that_was_not_offered_keeps_the_hook_of_those_that_were(triton: Any) -> None:
    emptied: list[Any] = []
    offered = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 32}, pre_hook=emptied.append)]
    made = triton_tuning._configuration({"BLOCK": 128, "num_warps": 8, "num_stages": 5}, offered)
    assert made.all_kwargs() | {"BLOCK": 128, "num_warps": 8, "num_stages": 5} == made.all_kwargs()
    assert made.pre_hook == offered[1].pre_hook


def test_choices_of_other_kernels_are_not_remembered(tuner: Callable[..., Any]) -> None:
    with watched([chosen("other", {"m": 64, "n": 4096}, {"BLOCK": 16})]) as watch:
        launch(tuner(), 64)
    assert watch.record()[0]["source"] == "tried"


def test_a_choice_out_of_tritons_cache_on_disk_keeps_its_timings(
    tuner: Callable[..., Any], triton: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(self: Any, key: Any, configs: Any, bench: Any) -> bool:
        self.configs_timings = {configs[0]: [0.5, 0.4, 0.6], configs[1]: [0.2, 0.1, 0.3]}
        self.cache[key] = configs[1]
        return True

    monkeypatch.setattr(triton.Autotuner, "check_disk_cache", check)
    cached = tuner(cache_results=True)
    cached.cache_results = True  # Triton leaves it off under its interpreter
    with watched() as watch:
        launch(cached, 64)
    (found,) = watch.record()
    assert (found["source"], found["winner"]) == ("disk", 1)
    assert [one["median_ns"] for one in found["trials"]] == [500_000.0, 200_000.0]


def test_the_autotuner_is_as_it_was_afterwards(triton: Any) -> None:
    names = ("prune_configs", "_bench", "check_disk_cache")
    before = [getattr(triton.Autotuner, name) for name in names]
    with watched():
        assert [getattr(triton.Autotuner, name) for name in names] != before
    assert [getattr(triton.Autotuner, name) for name in names] == before


def test_compilations_are_counted_and_those_in_tritons_cache_are_not(
    tuner: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bool] = []
    compilation = SimpleNamespace(listener=lambda **facts: heard.append(facts["cache_hit"]))
    monkeypatch.setitem(sys.modules, "triton.knobs", SimpleNamespace(compilation=compilation))
    one = tuner()
    run = one.fn.run

    def compiling(*args: Any, **kwargs: Any) -> Any:
        compilation.listener(times=SimpleNamespace(total=250_000), cache_hit=kwargs["BLOCK"] == 16)
        return run(*args, **kwargs)

    one.fn.run = compiling
    with watched() as watch:
        launch(one, 64)
    trials = watch.record()[0]["trials"]
    assert [(trial["compiled"], trial["compile_s"]) for trial in trials] == [(0, 0.0)] + 3 * [(1, 0.25)]
    assert heard == [True, False, False, False, False]  # and the launch after the choice


def test_without_triton_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, triton_tuning.MODULE, raising=False)
    with watched() as watch:
        pass
    assert watch.record() == []
