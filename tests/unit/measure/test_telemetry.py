from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from tests.unit.facts import facts, mentions, reason_alone

from inferprof.measure import telemetry
from inferprof.measure.telemetry import Telemetry

S = 1_000_000_000


class NvmlError(Exception):
    pass


def fake_nvml(**overrides: Any) -> Any:
    def refuse(handle):
        raise NvmlError("Not Supported")

    functions = {
        "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1980, 2: 2619}[kind],
        "nvmlDeviceGetPowerUsage": lambda handle: 345_600,
        "nvmlDeviceGetTemperature": lambda handle, sensor: 41,
        "nvmlDeviceGetCurrentClocksEventReasons": lambda handle: 0x04,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 7_500,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: ["ours", "another"],
    }
    replaced = {name: refuse if value is None else value for name, value in overrides.items()}
    return types.SimpleNamespace(
        NVMLError=NvmlError, NVML_CLOCK_SM=1, NVML_CLOCK_MEM=2, NVML_TEMPERATURE_GPU=0, **(functions | replaced)
    )


def sample(t_ns: int = 0, **values: Any) -> dict[str, Any]:
    return {
        "t_ns": t_ns,
        "sm_mhz": 1980,
        "memory_mhz": 2619,
        "power_w": 300.0,
        "temperature_c": 40,
        "reasons": 0,
        "energy_j": None,
        "processes": 1,
    } | values


def test_a_sample_is_in_units_that_its_names_say():
    assert telemetry.read_sample(fake_nvml(), None, 5) == {
        "t_ns": 5,
        "sm_mhz": 1980,
        "memory_mhz": 2619,
        "power_w": 345.6,
        "temperature_c": 41,
        "reasons": 0x04,
        "energy_j": 7.5,
        "processes": 2,
    }


def test_what_a_device_does_not_tell_is_none():
    nvml = fake_nvml(nvmlDeviceGetTotalEnergyConsumption=None, nvmlDeviceGetComputeRunningProcesses=None)
    read = telemetry.read_sample(nvml, None, 0)
    assert (read["energy_j"], read["processes"]) == (None, None)


def test_older_drivers_name_their_throttle_reasons_otherwise():
    nvml = fake_nvml(nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: 0x40)
    del nvml.nvmlDeviceGetCurrentClocksEventReasons
    assert telemetry.read_sample(nvml, None, 0)["reasons"] == 0x40


def test_the_summary_gives_median_and_range():
    summary = telemetry.summarize([sample(sm_mhz=mhz) for mhz in (1200, 1980, 1965)])
    assert summary["sm_mhz"] == {"median": 1965, "min": 1200, "max": 1980}
    assert (summary["samples"], summary["throttled"], summary["throttle_reasons"]) == (3, False, [])


def test_a_gauge_that_is_never_told_is_none():
    assert telemetry.summarize([sample(power_w=None)])["power_w"] is None


def test_throttling_that_is_never_told_is_none_and_not_no():
    summary = telemetry.summarize([sample(reasons=None), sample(reasons=None)])
    assert (summary["throttled"], summary["throttled_share"], summary["throttle_reasons"]) == (None, None, [])


def test_throttling_is_named_and_idling_is_not_throttling():
    idle, capped, hot = sample(reasons=0x01), sample(reasons=0x04), sample(reasons=0x60)
    summary = telemetry.summarize([idle, capped, hot, idle])
    assert summary["throttled"]
    assert summary["throttled_share"] == 0.5
    assert summary["throttle_reasons"] == ["hardware thermal slowdown", "power cap", "thermal slowdown"]


@pytest.mark.parametrize(("counts", "others"), [([0, 1, 1], 0), ([1, 3, 2], 2), ([0, 0], None), ([None, None], None)])
def test_other_processes_are_those_beside_ours(counts, others):
    assert telemetry.summarize([sample(processes=n) for n in counts])["other_processes"] == others


def test_a_boundary_is_judged_by_the_samples_of_its_own_loop():
    samples = [sample(t_ns=i * S // 20, sm_mhz=600 if i < 20 else 1980) for i in range(60)]
    boundary = {"span_ns": [int(1.5 * S), int(2.0 * S)], "samples_ns": [1_000, 2_000, 3_000]}
    found = telemetry.of_boundary(samples, boundary)
    assert found["samples"] == 13  # 11 in it and one on either side
    assert found["sm_mhz"]["min"] == 1980
    assert found["median_cycles"] == 2_000 * 1.98


def test_a_loop_without_a_sample_says_so():
    boundary = {"span_ns": [5 * S, 5 * S + 2_000_000], "samples_ns": [1]}
    assert facts(reason_alone(telemetry.of_boundary([sample()], boundary))) == ["no", "2 ms"]


def test_energy_per_inference_is_the_counters_difference():
    samples = [sample(t_ns=i * S // 10, energy_j=1000 + 30.0 * i) for i in range(40)]  # 300 W
    found = telemetry.energy(samples, {"span_ns": [S, 3 * S], "inferences": 100})
    assert found == {"j_per_inference": pytest.approx(6.0), "mean_w": pytest.approx(300.0), "window_s": 2.0}


def test_energy_of_a_short_window_is_not_measured():
    samples = [sample(t_ns=i * S // 10, energy_j=30.0 * i) for i in range(40)]
    found = telemetry.energy(samples, {"span_ns": [S, int(1.9 * S)], "inferences": 100})
    assert mentions(reason_alone(found), "span 0.90 s", "needs 1 s")


def test_energy_of_a_device_that_does_not_tell_is_not_measured():
    found = telemetry.energy([sample(t_ns=S)], {"span_ns": [0, 3 * S], "inferences": 100})
    assert mentions(reason_alone(found), "NVML", "no energy", "no sample")


def test_sampling_ends_when_the_other_end_is_closed():
    read_end, write_end = os.pipe()
    out = io.StringIO()
    threading.Timer(0.1, os.close, [write_end]).start()
    with open(read_end) as stop:  # noqa: PTH123 - a file descriptor has no Path
        telemetry.sample_until_closed(fake_nvml(), None, stop, out, interval_s=0.01)
    samples = [json.loads(line) for line in out.getvalue().splitlines()]
    assert 3 <= len(samples) <= 12
    times = [entry["t_ns"] for entry in samples]
    assert times == sorted(times)


# --- the process ------------------------------------------------------------------------------------------------

SAMPLER = f"""
import json, sys
print(json.dumps({sample(t_ns=S)!r}))
print('{{"t_ns": 3', end="", flush=True)  # a line that is never finished
sys.stdin.read()
"""


def fake_sampler(tmp_path: Path, code: str = SAMPLER) -> list[str]:
    script = tmp_path / "sampler.py"
    script.write_text(code)
    return [sys.executable, str(script)]


def wait_for_output(run: Telemetry) -> None:
    deadline = time.monotonic() + 20
    while os.fstat(run._out.fileno()).st_size == 0 and time.monotonic() < deadline:
        time.sleep(0.02)


def test_the_samples_of_the_block_are_recorded(tmp_path):
    with Telemetry(fake_sampler(tmp_path)) as run:
        wait_for_output(run)
    content = {"boundaries": {"call": {"span_ns": [S, S], "samples_ns": [500]}, "device": {"not_measured": "no"}}}
    record = run.record(content)
    assert record["samples"]["sm_mhz"] == [1980]
    assert record["summary"]["samples"] == 1
    assert set(record["boundaries"]) == {"call"}
    assert record["boundaries"]["call"]["median_cycles"] == 990.0
    assert mentions(reason_alone(record["energy"]), "no back to back")
    json.dumps(record, allow_nan=False)


def test_a_sampler_that_crashes_leaves_its_last_words(tmp_path):
    with Telemetry(fake_sampler(tmp_path, "raise SystemExit('no permission for this device')")) as run:
        run._process.wait()
    assert mentions(reason_alone(run.record()), "no permission")


def test_a_sampler_that_hangs_is_killed(tmp_path, monkeypatch):
    command = fake_sampler(tmp_path, "import time; time.sleep(600)")
    with Telemetry(command) as run:
        wait = run._process.wait

        def at_once(timeout: float | None = None) -> int:
            return wait(timeout=0.05 if timeout else None)

        monkeypatch.setattr(run._process, "wait", at_once)
    assert run._process.returncode == -signal.SIGKILL
    assert mentions(reason_alone(run.record()), "ended before", "first sample")


def test_without_a_gpu_the_real_sampler_says_why():
    environment_without_gpu = [sys.executable, "-c", "import os; os.environ['CUDA_VISIBLE_DEVICES'] = ''; "]
    environment_without_gpu[-1] += "from inferprof.measure.telemetry import main; main()"
    with Telemetry(environment_without_gpu) as run:
        run._process.wait()
    reason = run.record()["not_measured"]
    assert reason.startswith("NVML: ") or facts(reason) == ["no", "GPU", "CUDA_VISIBLE_DEVICES"]


def test_the_sampler_dies_with_a_killed_parent(tmp_path):
    pid_file = tmp_path / "pid"
    sampler = f"import os, sys; open({str(pid_file)!r}, 'w').write(str(os.getpid())); sys.stdin.read()"
    parent = (
        "import time; from inferprof.measure.telemetry import Telemetry; "
        f"Telemetry({fake_sampler(tmp_path, sampler)!r}).__enter__(); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    pid = int(pid_file.read_text())
    while _alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not _alive(pid)


def _alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_the_energy_of_several_gpus_is_told_where_that_of_each_is() -> None:
    known, unknown = {"energy": {"j_per_inference": 2.0, "mean_w": 100.0}}, {"energy": {"not_measured": "why"}}
    both = telemetry.of_all([known, known])
    assert both["energy"] == {"j_per_inference": 4.0, "mean_w": 200.0}
    assert telemetry.of_all([known, unknown])["energy"] == unknown["energy"]
    assert telemetry.of_all([{"not_measured": "no GPU"}] * 2) == {"not_measured": "no GPU"}
