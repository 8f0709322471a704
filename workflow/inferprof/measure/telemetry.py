"""What the GPU did while a case was measured: clocks, power, temperature, throttling, energy, other processes.

NVML is read in a process of its own (`python -m inferprof.measure.telemetry`), so that reading it takes no time of
the measured one. Both use the monotonic clock, which all processes share (time.perf_counter_ns on Linux).
"""

from __future__ import annotations

import contextlib
import json
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TextIO

from inferprof.machine import hardware

INTERVAL_S = 0.05
INTERVAL_NS = round(INTERVAL_S * 1e9)
ENERGY_WINDOW_S = 1.0
"""Shortest window that energy is told for: power is an average over 1 s (NVML, nvmlDeviceGetPowerUsage)."""
GAUGES = ("sm_mhz", "memory_mhz", "power_w", "temperature_c")
START = [sys.executable, "-m", "inferprof.measure.telemetry"]

Sample = dict[str, Any]


class Telemetry:
    """Samples while its `with` block runs. The sampler ends with the block, or with this process if it is killed."""

    def __init__(self, command: Sequence[str] = START, gpu: int = 0) -> None:
        self._command = [*command, str(gpu)]
        self._samples: list[Sample] = []
        self._reason = "the run ended before the first sample"

    def __enter__(self) -> Telemetry:
        self._out = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=self._out, stderr=self._log, text=True
        )
        return self

    def __exit__(self, *exception: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._out as out, self._log as log:
            out.seek(0)
            log.seek(0)
            self._samples, reason = _read(out)
            self._reason = reason or " ".join(log.read().split()[-20:]) or self._reason

    def record(self, run: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The samples and what they say, or why there are none.

        With a run's record (its `boundaries` and `throughput`) also per measured loop, and energy per inference.
        """
        if not self._samples:
            return {"not_measured": self._reason}
        run = run or {}
        boundaries = {name: entry for name, entry in run.get("boundaries", {}).items() if "span_ns" in entry}
        return {
            "interval_s": INTERVAL_S,
            "summary": summarize(self._samples),
            "boundaries": {name: of_boundary(self._samples, entry) for name, entry in boundaries.items()},
            "energy": energy(self._samples, run.get("throughput", {}).get("back_to_back", {})),
            "samples": {field: [sample.get(field) for sample in self._samples] for field in self._samples[0]},
        }


def _read(lines: Iterable[str]) -> tuple[list[Sample], str | None]:
    """The samples of the sampler's output, and its reason for having none. A line cut off by a kill is dropped."""
    samples: list[Sample] = []
    reason = None
    for line in lines:
        if line.endswith("\n"):
            entry = json.loads(line)
            reason = entry.get("not_measured", reason)
            if "t_ns" in entry:
                samples.append(entry)
    return samples, reason


# --- what samples say ------------------------------------------------------------------------------------------


def summarize(samples: Sequence[Sample]) -> dict[str, Any]:
    """Median and range of each gauge, whether and why the GPU throttled, who else ran; None: NVML doesn't tell."""
    masks = [sample["reasons"] for sample in samples if sample["reasons"] is not None]
    reasons = sorted({name for mask in masks for bit, name in hardware.SLOWER.items() if mask & bit})
    throttled = sum(any(mask & bit for bit in hardware.SLOWER) for mask in masks)
    return {
        "samples": len(samples),
        **{gauge: _range([s[gauge] for s in samples if s[gauge] is not None]) for gauge in GAUGES},
        "throttled": throttled > 0 if masks else None,
        "throttled_share": throttled / len(masks) if masks else None,
        "throttle_reasons": reasons,
        "other_processes": _others([s["processes"] for s in samples if s["processes"] is not None]),
    }


def _range(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def _others(counts: Sequence[int]) -> int | None:
    """The most processes that computed beside ours; None where NVML does not show even ours (some containers).

    Counted, not compared by id: in a container NVML may show ids of the host.
    """
    return max(counts) - 1 if any(counts) else None


def of_boundary(samples: Sequence[Sample], boundary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary over a boundary's loop, widened by one interval, and its median latency in SM clock cycles."""
    begin, end = boundary["span_ns"]
    during = [s for s in samples if begin - INTERVAL_NS <= s["t_ns"] <= end + INTERVAL_NS]
    if not during:
        return {"not_measured": f"no sample in the {(end - begin) / 1e6:.0f} ms of the loop"}
    summary = summarize(during)
    clock = summary["sm_mhz"]
    median = statistics.median(boundary["samples_ns"])
    return {**summary, "median_cycles": cycles(median, clock["median"]) if clock else None}


def cycles(ns: float, mhz: float) -> float:
    """A duration in clock cycles."""
    return ns * mhz / 1e3


def energy(samples: Sequence[Sample], throughput: Mapping[str, Any]) -> dict[str, Any]:
    """Joules per inference: the total energy counter over the back to back loop, or why not.

    The whole board's energy, its idle share included (NVML, nvmlDeviceGetTotalEnergyConsumption).
    """
    if "span_ns" not in throughput:
        return {"not_measured": "no back to back loop"}
    begin, end = throughput["span_ns"]
    in_loop = [s for s in samples if begin <= s["t_ns"] <= end and s["energy_j"] is not None]
    if not in_loop:
        return {"not_measured": "NVML tells no energy of this device, or took no sample in the loop"}
    seconds = (in_loop[-1]["t_ns"] - in_loop[0]["t_ns"]) / 1e9
    if seconds < ENERGY_WINDOW_S:
        return {"not_measured": f"the samples of the loop span {seconds:.2f} s; needs {ENERGY_WINDOW_S:.0f} s"}
    watts = (in_loop[-1]["energy_j"] - in_loop[0]["energy_j"]) / seconds
    joules = watts * (end - begin) / 1e9 / throughput["inferences"]
    return {"j_per_inference": joules, "mean_w": watts, "window_s": seconds}


def of_all(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The record of several GPUs that share the work: the first one's gauges, and the energy of all."""
    energies = [record.get("energy", {}) for record in records]
    if len(records) == 1 or "energy" not in records[0]:
        return dict(records[0])
    if lacking := [energy for energy in energies if "mean_w" not in energy]:
        return {**records[0], "energy": lacking[0]}
    added = {name: sum(energy[name] for energy in energies) for name in ("j_per_inference", "mean_w")}
    return {**records[0], "energy": {**energies[0], **added}}


# --- the sampler's process -------------------------------------------------------------------------------------


def read_sample(nvml: Any, handle: Any, t_ns: int) -> Sample:
    """One sample; what this device does not tell is None."""

    def ask(question: Callable[..., Any], *arguments: Any, scale: float = 1) -> Any:
        try:
            answer = question(handle, *arguments)
        except nvml.NVMLError:
            return None
        return answer / scale if scale != 1 else answer

    processes = ask(nvml.nvmlDeviceGetComputeRunningProcesses)
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    return {
        "t_ns": t_ns,
        "sm_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
        "memory_mhz": ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
        "power_w": ask(nvml.nvmlDeviceGetPowerUsage, scale=1e3),
        "temperature_c": ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
        "reasons": ask(reasons or nvml.nvmlDeviceGetCurrentClocksThrottleReasons),
        "energy_j": ask(nvml.nvmlDeviceGetTotalEnergyConsumption, scale=1e3),
        "processes": None if processes is None else len(processes),
    }


def sample_until_closed(nvml: Any, handle: Any, stop: TextIO, out: TextIO, interval_s: float = INTERVAL_S) -> None:
    """Write samples as lines of JSON until `stop` is closed at its other end, also by that process's death."""
    while True:
        out.write(json.dumps(read_sample(nvml, handle, time.perf_counter_ns())) + "\n")
        out.flush()
        if select.select([stop], [], [], interval_s)[0]:
            return


def main() -> None:
    """Sample the GPU that this environment's CUDA will call by the number given, or say why it cannot be done."""
    with contextlib.ExitStack() as stack:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception as error:  # no library, no driver, no permission: all mean that nothing is sampled
            sys.stdout.write(json.dumps({"not_measured": f"NVML: {' '.join(str(error).split())}"}) + "\n")
            return
        stack.callback(pynvml.nvmlShutdown)
        handle = hardware.visible_handle(pynvml, int(sys.argv[1]))
        if handle is None:
            sys.stdout.write(json.dumps({"not_measured": "no GPU is visible (CUDA_VISIBLE_DEVICES)"}) + "\n")
            return
        sample_until_closed(pynvml, handle, sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
