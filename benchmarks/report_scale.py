"""Writes the reports of made-up studies of 100 and 500 cases and says what that took. No number in them was measured.

    python benchmarks/report_scale.py [--cases 500] [--folder /tmp]

Exit code 1 where the larger one takes 60 s or 2 GiB or more, or the page of 100 cases 3 MB or more. Seconds are those
on the clock, or of CPU where these are fewer: neighbours lengthen the one, and several processes draw the plots.
Each report is written by `inferprof report` in a process of its own. Every case has three rounds of 400 samples per
boundary and telemetry, and each on a GPU a traced profile of 300 kernels and 10 iterations. The diagnosis is that of
the runtime's first case. With --cases of 100 or fewer there is one report.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from own_process import Took, run_command

from inferprof.case import Case, Shape
from inferprof.diagnosis import run
from inferprof.files import write_json
from inferprof.tables import schema
from inferprof.tables.trace import events
from inferprof.tables.trace.timeline import KERNEL, MEMCPY, assemble

SECONDS = 60.0
MEMORY_BYTES = 2 * 1024**3
PAGE_BYTES = 3_000_000
PAGE_CASES = 100
STUDY, MACHINE, BASELINE = "scale", "h100-80gb-hbm3-sm90-0123abcd", "fp32/ort_cpu/default"
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "fp8")
BACKENDS = {"ort_cpu": 20.0, "ort_cuda": 1.2, "tensorrt": 0.6, "torch_compile": 1.0}
"""Runtime → made-up ms of one item."""
BATCHES = (1, 4, 16, 64, 256)
ROUNDS, SAMPLES, TELEMETRY_SAMPLES = 3, 400, 200
KERNELS, ITERATIONS, NAMES = 300, 10, 40
MS = 1_000_000


def cases(count: int) -> Iterator[Case]:
    """As many cases, model after model."""
    for place in range(count):
        model, rest = divmod(place, len(PRECISIONS) * len(BACKENDS) * len(BATCHES))
        precision, rest = divmod(rest, len(BACKENDS) * len(BATCHES))
        backend, batch = divmod(rest, len(BATCHES))
        name = list(BACKENDS)[backend]
        yield Case(f"model_{model}", PRECISIONS[precision], name, "default", f"b{BATCHES[batch]}")


def record(case: Case, round_: int, rng: np.random.Generator) -> dict[str, Any]:
    """What `inferprof run` would write."""
    gpu = case.backend != "ort_cpu"
    batch = Shape.parse(case.shape).batch
    ms = BACKENDS[case.backend] * batch**0.7 * (1 - 0.15 * PRECISIONS.index(case.precision)) * rng.normal(1, 0.003)

    def series(factor: float) -> dict[str, Any]:
        samples = ms * factor * MS * (1 + rng.gamma(2.0, 0.004, SAMPLES))
        return {"samples_ns": samples.astype(int).tolist(), "warmup": 20, "settled": True, "stopped_by": "interval"}

    shares = {"stage_inputs": 0.05, "h2d": 0.2, "bind": 0.02, "execute": 1.0, "d2h": 0.1, "extract": 0.03}
    times = np.arange(TELEMETRY_SAMPLES) * 50 * MS
    gauges = {"sm_mhz": 1980.0, "memory_mhz": 2619.0, "power_w": 500.0, "temperature_c": 50.0}
    noisy = {name: (value * rng.normal(1, 0.02, times.size)).round(1).tolist() for name, value in gauges.items()}
    summary = {name: {"median": value, "min": value, "max": value} for name, value in gauges.items()}
    told = {"throttled": False, "throttled_share": 0.0, "throttle_reasons": [], "other_processes": 0}
    telemetry = {
        "summary": {"samples": times.size, **summary, **told},
        "boundaries": {},
        "energy": {"not_measured": "made up"},
        "samples": {"t_ns": times.tolist(), **noisy, "reasons": [0] * times.size},
    }
    return {
        "schema": 1,
        "case": dict(zip(("model", "precision", "backend", "variant", "shape"), case.path.parts, strict=True)),
        "round": round_,
        "machine": MACHINE,
        "status": "ok",
        "reason": None,
        "boundaries": {
            "device": series(1.0) if gpu else {"not_measured": "a CPU has no clock apart from the host's"},
            "call": series(1.01),
            "end_to_end": series(1.4),
        },
        "stages": {name: {"samples_ns": [int(ms * share * MS)] * 50} for name, share in shares.items()},
        "throughput": {"back_to_back": {"inferences": 500, "seconds": 500 * ms / 1e3}},
        "first": {"load_ns": 812 * MS, "first_inference_ns": int(ms * 3 * MS)},
        "memory": {"host_rss_bytes": 512 << 20, "device_bytes": 734 << 20 if gpu else None, "runtime": {}},
        "checks": {"outputs_finite": {"passed": True, "detail": "1 output"}},
        "telemetry": telemetry if gpu else {"not_measured": "no GPU"},
        "environment": {"git": "made up", "packages": {}, "gpu": None, "processes_on_gpu": None},
        "protocol": {},
        "started": "2026-01-01T00:00:00+00:00",
    }


def profile() -> pd.DataFrame:
    """The tidy table of a made-up trace: iterations of 2 ms with a copy, and kernels with their launches."""
    place = np.arange(KERNELS * ITERATIONS)
    begin = place // KERNELS * 2 * MS + 100_000 + place % KERNELS * 6_000
    every = np.arange(ITERATIONS)
    kernels = pd.DataFrame({"start": begin + 4_000, "end": begin + 8_500, "kind": KERNEL, "name": place % NAMES})
    copies = pd.DataFrame({"start": every * 2 * MS + 20_000, "end": every * 2 * MS + 80_000, "kind": MEMCPY})
    ops = pd.concat([kernels, copies.assign(name=NAMES + 1, bytes=602_112)], ignore_index=True).fillna({"bytes": 0})
    launches = pd.DataFrame({"start": begin, "end": begin + 3_000, "name": NAMES})
    copying = pd.DataFrame({"start": every * 2 * MS + 10_000, "end": every * 2 * MS + 85_000, "name": NAMES + 2})
    calls = pd.concat([launches, copying], ignore_index=True)
    ranges = pd.DataFrame({"start": every * 2 * MS, "end": every * 2 * MS + 1_950_000, "label": "iteration"})
    names = [f"void cutlass::gemm_{index}<float>(float *)" for index in range(NAMES)]
    timeline = assemble(
        ops.assign(device=0, stream=7, correlation=ops.index).astype({"bytes": int}),
        calls.assign(thread=1, correlation=calls.index),
        ranges.assign(thread=1),
        [*names, "cudaLaunchKernel", "HtoD pageable", "cudaMemcpyAsync"],
    )
    return events.tidy(timeline, "nsys")


def generate(results: Path, count: int) -> None:
    """The results folder of a study."""
    rng = np.random.default_rng(0)
    traced = profile()
    rows = []
    for case in cases(count):
        rows.append([MACHINE, *case.path.parts, "run", ""])
        folder = results / MACHINE / "benchmark" / case.path
        folder.mkdir(parents=True)
        for round_ in range(ROUNDS):
            (folder / f"r{round_}.json").write_text(json.dumps(record(case, round_, rng)), encoding="utf-8")
        if case.backend != "ort_cpu":
            table = results / MACHINE / "table" / "nsys" / f"{case.path}.parquet"
            table.parent.mkdir(parents=True, exist_ok=True)
            schema.of_case(traced, MACHINE, case).to_parquet(table)
    diagnose(results, count)
    study = results / "reports" / STUDY
    study.mkdir(parents=True)
    with (study / "cases.csv").open("w", newline="", encoding="utf-8") as file:
        columns = ["machine", "model", "precision", "backend", "variant", "shape", "outcome", "reason"]
        csv.writer(file).writerows([columns, *rows])


def diagnose(results: Path, count: int) -> None:
    """The diagnoses of all cases: of a runtime's first case made, of the others copied."""
    made: dict[str, dict[str, Any]] = {}
    for case in cases(count):
        if case.backend not in made:
            made[case.backend] = run.diagnose(results, MACHINE, case, {})
        path = results / MACHINE / "diagnosis" / f"{case.path}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, {**made[case.backend], "case": dataclasses.asdict(case)})


def measure(count: int, results: Path) -> tuple[Took, int]:
    """Generate a study and write its report: what that took, and the bytes of the page."""
    generate(results, count)
    command = ("report", str(results), "--study", STUDY, "--machine", MACHINE, "--baseline", BASELINE)
    took = run_command([sys.executable, "-m", "inferprof", *command], results)
    page = (results / "reports" / STUDY / "REPORT.html").stat().st_size
    print(f"{count:>5,} cases: {took}, page {page / 1e6:.2f} MB", flush=True)
    return took, page


def main() -> int:
    """Measure both sizes and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="where the results are written (100 MB)")
    arguments = parser.parse_args()
    if arguments.folder:
        arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        sizes = dict.fromkeys((min(PAGE_CASES, arguments.cases), arguments.cases))
        reports = [measure(count, Path(folder) / str(count)) for count in sizes]
    page, large = reports[0][1], reports[-1][0]
    within = min(large.seconds, large.cpu) < SECONDS and large.peak < MEMORY_BYTES and page < PAGE_BYTES
    print(
        "within the limits" if within else f"over a limit: {SECONDS:.0f} s, {MEMORY_BYTES} bytes, {PAGE_BYTES} bytes"
    )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
