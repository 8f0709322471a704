"""MLPerf LoadGen as a second source of load and a second clock: its scenarios on our queue and worker.

Optional: `pip install mlcommons-loadgen`.
"""

from __future__ import annotations

import importlib
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import numpy as np

from inferprof import progress
from inferprof.documents.serving import LoadGenRun, Scenario
from inferprof.errors import CaseFailed
from inferprof.queueing.policy import Curve
from inferprof.serving.bench import Bench, latency_of, percents_of
from inferprof.serving.load import Queue, pin

PACKAGE: Final = "mlperf_loadgen"
MISSING: Final = "LoadGen is not installed: pip install mlcommons-loadgen"
SAMPLES: Final = 64
SEEDS: Final = {"qsl_rng_seed": 1, "sample_index_rng_seed": 2, "schedule_rng_seed": 3}
FASTER: Final = 0.5
"""Of the capacity: the rate of the scenario Server."""
SUMMARY: Final = "mlperf_log_summary.txt"


def run(bench: Bench, scenario: Scenario, curve: Curve) -> LoadGenRun:
    """Run a scenario. Where LoadGen is not installed, that is why there are no numbers."""
    try:
        module: Any = importlib.import_module(PACKAGE)
    except ImportError:
        return LoadGenRun(scenario=scenario, not_measured=MISSING)
    progress.step("LoadGen")
    system = _System(bench, module)
    settings = settings_of(module, scenario, bench, curve)
    with tempfile.TemporaryDirectory() as folder:
        logs = module.LogSettings()
        logs.log_output.outdir = folder
        logs.log_output.copy_summary_to_stdout = False
        logs.enable_trace = False
        under_test = module.ConstructSUT(system.issue, lambda: None)
        library = module.ConstructQSL(SAMPLES, SAMPLES, lambda _: None, lambda _: None)
        load = threading.Thread(target=system.load, args=(under_test, library, settings, logs), daemon=True)
        load.start()
        try:
            system.work()  # in the thread that opened the sessions: torch's modes and CUDA's streams are a thread's
        finally:
            load.join()
            module.DestroyQSL(library)
            module.DestroySUT(under_test)
        text = Path(folder, SUMMARY).read_text(encoding="utf-8")
    if system.error:
        raise CaseFailed(f"LoadGen {scenario}: {system.error}")
    return result(bench, scenario, system, summary_of(text))


def settings_of(module: Any, scenario: Scenario, bench: Bench, curve: Curve) -> Any:
    """Its settings: fixed seeds, the length of our runs, and the rate of FASTER of the capacity."""
    capacity = curve.capacity(bench.asked.max_batch)
    settings = module.TestSettings()
    settings.scenario = getattr(module.TestScenario, scenario)
    settings.mode = module.TestMode.PerformanceOnly
    settings.min_duration_ms = int(1000 * bench.asked.seconds)
    settings.max_duration_ms = 2 * settings.min_duration_ms
    settings.min_query_count = 1
    settings.server_target_qps = FASTER * capacity
    settings.server_target_latency_ns = int(bench.objective_ns)
    settings.server_target_latency_percentile = bench.asked.percentile / 100
    settings.offline_expected_qps = capacity
    settings.single_stream_expected_latency_ns = int(curve.mean(1))
    settings.multi_stream_samples_per_query = bench.asked.max_batch
    settings.multi_stream_expected_latency_ns = int(curve.mean(bench.asked.max_batch))
    for name, seed in SEEDS.items():
        setattr(settings, name, seed)
    return settings


class _System:
    """What LoadGen calls: queries go into our queue, and a worker serves them by the policy."""

    def __init__(self, bench: Bench, module: Any) -> None:
        self.bench, self.module, self.queue = bench, module, Queue()
        self.start = time.perf_counter_ns()
        self.ids: list[int] = []
        self.samples: list[int] = []
        self.came: list[float] = []
        self.done: list[float] = []
        self.error: str | None = None

    def clock(self) -> float:
        """ns from the start."""
        return float(time.perf_counter_ns() - self.start)

    def load(self, *test: Any) -> None:
        """Let LoadGen send its queries, and close the queue behind them."""
        pin(self.bench.core)
        try:
            self.module.StartTestWithLogSettings(*test)
        finally:
            self.queue.close()

    def issue(self, queries: Any) -> None:
        """Called by LoadGen when queries are due."""
        now = self.clock()
        for query in queries:
            self.ids.append(query.id)
            self.samples.append(query.index)
            self.came.append(now)
            self.queue.put(len(self.ids) - 1, now)

    def work(self) -> None:
        """Serve until the queue is closed."""
        while numbers := self.queue.batch(self.bench.policy, self.clock):
            try:
                self.bench.server.serve([self.samples[number] for number in numbers])
            except Exception as error:  # LoadGen waits for each answer
                self.error = self.error or str(error)
            now = self.clock()
            self.done.extend([now] * len(numbers))
            answers = [self.module.QuerySampleResponse(self.ids[number], 0, 0) for number in numbers]
            self.module.QuerySamplesComplete(answers)


def summary_of(text: str) -> dict[str, str]:
    """The lines `name : value` of LoadGen's summary."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs if name.strip() and value.strip()}


def result(bench: Bench, scenario: Scenario, system: _System, summary: dict[str, str]) -> LoadGenRun:
    """LoadGen's summary beside our clock, which starts when LoadGen hands a query over. A latency of MultiStream is
    of a query of as many samples as a batch has: it is over with the last of them.
    """
    latency = np.array(system.done) - np.array(system.came[: len(system.done)])
    requests = latency.size
    if scenario == "MultiStream":
        size = bench.asked.max_batch
        latency = latency[: requests - requests % size].reshape(-1, size).max(axis=1)
    seconds = (system.done[-1] - system.came[0]) / 1e9
    return LoadGenRun(
        scenario=scenario,
        summary=summary,
        own=latency_of(latency, percents_of(bench.asked)),
        requests=requests,
        per_second=requests / seconds,
    )
