"""A machine that can do all that verify tries, and stand-ins for the verbs, whose captures are real ones."""

from __future__ import annotations

import datetime
import json
import lzma
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from inferprof import registry
from inferprof.case import Case
from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu, Machine
from inferprof.tables import schema
from inferprof.verify import Asked, verify

MATCH = {"passed": True, "detail": "SQNR 120.0 dB, at least 100 dB"}
PRODUCTS = {
    "fp8": "sm100_xmma_gemm_e4m3e4m3_f32f32_f16_tn_n_tilesize256x128x64",
    "mxfp8": "cutlass3x_sm120_bstensorop_gemm_block_scaled_ue8m0xe4m3_ue8m0xe4m3_f32_bf16",
    "nvfp4": "cutlass3x_sm120_bstensorop_gemm_block_scaled_ue4m3xe2m1_ue4m3xe2m1_f32_f16",
}
"""Number format → a kernel of NVIDIA's libraries that computes in it."""
Plant = Callable[["Tools", list[str]], int | None]
"""Does a verb in another way and returns its exit code; None: it is done as always."""


def option(words: Sequence[str], name: str) -> str:
    return words[words.index(name) + 1]


def write(path: Path, content: Any) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return 0


def bandwidth(link: float, memory: float) -> dict[str, Any]:
    """What is measured of copies of so many GB/s."""

    def curve(gb_per_s: float) -> dict[str, Any]:
        return {"gb_per_s": gb_per_s, "latency_ns": 900.0, "by_size": {"4096": 1000.0}}

    both = {"pinned": curve(link), "pageable": curve(link / 4)}
    return {"method": "copies", "h2d": both, "d2h": both, "d2d": curve(memory)}


def partition(taken: int, *left: str) -> dict[str, Any]:
    """Of a graph of 69 nodes, how many TensorRT's parser takes, and why it leaves the others."""
    nodes = [
        {"node": f"n{i}", "op_type": "Det", "why": "unsupported", "words": words} for i, words in enumerate(left)
    ]
    part = {"nodes": 69, "taken": taken, "subgraphs": [taken], "left": nodes}
    return {"by": "TensorRT 10", "dynamic": part, "static": part, "looped": []}


class Tools:
    """Stands in for `inferprof VERB …`: every verb succeeds unless a failure is planted."""

    def __init__(self, repository: Path, frames: Callable[[str], pd.DataFrame]) -> None:
        self.repository = repository
        self.frames = frames
        self.plant: Plant = lambda tools, words: None
        self.ran: list[str] = []
        self.row = ""

    def __call__(self, command: Sequence[str], log: Path, seconds: float) -> int:
        words = list(command[3:])
        assert seconds > 0
        self.ran.append(" ".join(words))
        self.row = log.stem
        planted = self.plant(self, words)
        return self.done(words) if planted is None else planted

    def done(self, words: list[str]) -> int:
        return int(getattr(self, f"_{words[0]}")(words) or 0)

    def _probe(self, words: list[str]) -> int:
        facts = {"system": {"python": "3.12.3"}, "packages": {}, "gpus": [{"name": "RTX"}], "cpu": {"model": "Xeon"}}
        return write(Path(option(words, "--out")), facts)

    def _export(self, words: list[str]) -> int:
        return write(Path(option(words, "--out")), "a graph")

    _quantize = _export

    def _build(self, words: list[str]) -> int:
        out = Path(option(words, "--out"))
        write(out, "an engine")
        return write(out.with_suffix(".build.json"), {"status": "ok", "reason": None, "bytes": 9, "seconds": 1.0})

    def _partition(self, words: list[str]) -> int:
        return write(Path(option(words, "--out")), partition(69))

    def _bandwidth(self, words: list[str]) -> int:
        return write(Path(option(words, "--out")), bandwidth(55.0, 1600.0))

    def _run(self, words: list[str]) -> int:
        return write(Path(option(words, "--out")), self.record(words))

    def record(self, words: list[str], **changes: Any) -> dict[str, Any]:
        backend = words[1]
        where = "end_to_end" if backend == "ort_cpu" else "device"
        nothing: dict[str, Any] = {name: {"not_measured": "not here"} for name in ("device", "call", "end_to_end")}
        summary = {
            "samples": 20,
            "sm_mhz": {"median": 2400.0},
            "power_w": {"median": 300.0},
            "throttled": False,
            "throttle_reasons": [],
        }
        case = {"backend": backend, "precision": option(words, "--precision"), "variant": option(words, "--variant")}
        case |= {"model": "two_layers", "shape": option(words, "--shape")}
        return {
            "schema": 1,
            "round": int(option(words, "--round")) if "--round" in words else 0,
            "machine": option(words, "--machine"),
            "protocol": {},
            "status": "ok",
            "reason": None,
            "case": case,
            "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "boundaries": {**nothing, where: {"samples_ns": [100_000, 101_000, 102_000]}},
            "checks": {"outputs_finite": {"passed": True, "detail": "1 outputs"}, "outputs_match": MATCH},
            "environment": {"git": None},
            "telemetry": {"summary": summary},
            **changes,
        }

    def _capture(self, words: list[str]) -> int:
        own, run = words[: words.index("--")], words[words.index("--") + 4 :]
        out = Path(option(own, "--out"))
        write(out, "a capture")
        if words[1] == "trt_layers":
            for part in ("profile", "graph"):
                data = self.repository / f"tests/data/trt_layers/h100_tensorrt_vit2.{part}.json"
                shutil.copy(data, out.with_name(out.name.replace("profile", part)))
        if words[1] == "ort_profile":
            shutil.copy(self.repository / "tests/data/ort_profile/h100_ort_tensorrt_ep.json.gz", out)
        return write(Path(option(run, "--out")), {"status": "ok", "reason": None})

    def _table(self, words: list[str]) -> int:
        tool, capture = words[1], Path(words[2])
        case = Case.of_capture(str(capture.absolute()))
        assert case is not None
        made = case.precision in PRODUCTS
        frame = product(PRODUCTS[case.precision]) if made else self.frames(tool)
        return self.write_table(words, frame)

    def write_table(self, words: list[str], frame: pd.DataFrame) -> int:
        out = Path(option(words, "--out"))
        out.parent.mkdir(parents=True, exist_ok=True)
        case = Case.of_capture(str(Path(words[2]).absolute()))
        schema.of_case(frame, option(words, "--machine"), case).to_parquet(out)
        return 0


def product(name: str) -> pd.DataFrame:
    """A table of one matrix product."""
    rows = [{"level": "kernel", "name": name, "instances": 10, "metric": "duration_total", "value": 5000.0}]
    return schema.conform(pd.DataFrame(rows), "trt_nodes")


@pytest.fixture(scope="session")
def frames(
    repository: Path, captured: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], pd.DataFrame]:
    """Tool → the table of a real capture by it."""
    folder = tmp_path_factory.mktemp("captures")
    data = repository / "tests/data"
    (folder / "b8.sqlite").write_bytes(lzma.decompress((data / "nsys/h100_tensorrt_vit2.sqlite.xz").read_bytes()))
    shutil.copy(data / "trt_layers/h100_tensorrt_vit2.graph.json", folder / "b8.graph.json")
    files = {
        "nsys": lambda: captured("h100_ort_cuda_vit"),
        "kineto": lambda: data / "kineto/h100_ort_cuda_vit.json.gz",
        "ncu": lambda: data / "ncu/h100_ort_cuda_vit_raw.csv.gz",
        "ort_profile": lambda: data / "ort_profile/h100_ort_tensorrt_ep.json.gz",
        "trt_layers": lambda: data / "trt_layers/h100_tensorrt_vit2.profile.json",
        "trt_nodes": lambda: folder / "b8.sqlite",
    }
    known: dict[str, pd.DataFrame] = {}

    def frame(tool: str) -> pd.DataFrame:
        if tool not in known:
            known[tool] = registry.profilers()[tool].read(files[tool]())
        return known[tool]

    return frame


@pytest.fixture
def tools(repository: Path, frames: Callable[[str], pd.DataFrame]) -> Tools:
    return Tools(repository, frames)


@pytest.fixture
def blackwell(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that nothing is refused on."""
    monkeypatch.setattr(shutil, "which", lambda name: f"bin/{name}")
    versions = {"tensorrt": "10.14.1", "onnxruntime-gpu": "1.31.1"}
    return Machine(
        gpu=Gpu("NVIDIA RTX PRO 6000 Blackwell", (12, 0), 96 << 30, "GPU-1", "580.95"),
        packages={name: versions.get(name, "1.0") for name in hardware.PACKAGES},
        tools={tool: f"bin/{tool}" for tool in hardware.TOOLS},
        nvinfer=frozenset({10}),
        label="blackwell",
    )


@pytest.fixture
def verified(tools: Tools, blackwell: Machine, tmp_path: Path) -> Callable[..., dict[str, dict[str, Any]]]:
    """(plant, rows, machine) → name of a row → what verify.json says of it."""

    def run(
        plant: Plant | None = None, *only: str, machine: Machine = blackwell, **asked: Any
    ) -> dict[str, dict[str, Any]]:
        tools.plant = plant or tools.plant
        verify(Asked(tmp_path / "out", only, **asked), machine, runner=tools)
        content = json.loads((tmp_path / "out" / "verify.json").read_text())
        return {row["name"]: row for row in content["rows"]}

    return run
