"""The rows of verify, as data: what each proves, what it needs, how it is tried and what to do where it fails."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from inferprof import registry
from inferprof.case import OptionValue
from inferprof.verify import trials
from inferprof.verify.site import TABLES, Site, case_of


@dataclass(frozen=True)
class Row:
    """One thing that a machine can or cannot do."""

    name: str
    title: str
    needs: Callable[[Site], str | None]
    """Why it cannot be tried here, in the words of the refusal; None where it can."""
    run: Callable[[Site], str]
    """Tries it, and says in a line what was seen. Raises CaseFailed where it does not hold."""
    next_step: str
    """What to do where it fails."""
    after: tuple[str, ...] = ()
    """Rows whose files it reads."""


BACKENDS: Final = (
    "ort_cpu",
    "ort_cuda",
    "ort_tensorrt",
    "ort_tensorrt_rtx",
    "tensorrt",
    "tensorrt_rtx",
    "torch_eager",
    "torch_compile",
)
GRAPHS: Final = ("ort_cuda", "tensorrt", "tensorrt_rtx", "torch_eager")
LOG: Final = "read the row's log"


def _needs_case(backend: str, *profilers: str) -> Callable[[Site], str | None]:
    return lambda site: site.refusal(case_of(backend), *profilers)


def _nothing(site: Site) -> str | None:
    del site
    return None


def _backend(name: str) -> Row:
    return Row(
        name,
        f"{name}: outputs against fp32 on the CPU",
        _needs_case(name),
        partial(trials.agrees, backend=name),
        f"{LOG}; run `inferprof verify --only {name}` again after `inferprof probe --out environment.json`, whose "
        "versions must stand in one row of docs/versions.md",
        after=("model",),
    )


def _graph(backend: str) -> Row:
    return Row(
        f"graph_{backend}",
        f"{backend}: captured and replayed as a CUDA graph",
        lambda site: trials.no_gpu(site) or site.refusal(case_of(backend)) or site.lacks_modules("yaml"),
        partial(trials.agrees, backend=backend, variant="graph", options=_GRAPH),
        f"{LOG}; leave `cuda_graph` out of the variants of {backend} until this passes",
        after=("model", backend),
    )


def _format(precision: str, at_least: float) -> Row:
    return Row(
        f"kernels_{precision}",
        f"{precision}: outputs against fp32, and the format of the kernels that ran",
        partial(trials.unformatted, precision=precision),
        partial(trials.computes_in, precision=precision, at_least=at_least),
        f"run `inferprof formats` on the table that the log names: it lists the kernels that ran in another format; "
        f"trust no speed of {precision} from this machine until this passes",
        after=("model",),
    )


_GRAPH: Final[Mapping[str, OptionValue]] = {"cuda_graph": True}

ROWS: Final[tuple[Row, ...]] = (
    Row(
        "probe",
        "the machine tells what it is",
        lambda site: site.lacks_modules("psutil"),
        trials.probes,
        f"{LOG}; run `nvidia-smi`: where that fails too, the driver is broken",
    ),
    Row(
        "model",
        "a model of two layers as fp32 ONNX",
        _nothing,
        trials.exports,
        f"{LOG}; torch, transformers and onnx must fit together: install them from requirements/study.txt",
    ),
    *map(_backend, BACKENDS),
    Row(
        "build_ahead",
        "TensorRT-RTX: engines for compute capability 12.0 and 12.1, built without those GPUs",
        lambda site: site.lacks("tensorrt-rtx"),
        trials.builds_ahead,
        f"{LOG}; install tensorrt-rtx of requirements/study.txt",
        after=("model",),
    ),
    Row(
        "partition_parser",
        "TensorRT's parser says which nodes it would take",
        lambda site: site.lacks("tensorrt-rtx"),
        trials.partitions_by_parser,
        f"{LOG}; install tensorrt-rtx of requirements/study.txt",
        after=("model",),
    ),
    Row(
        "partition_ort_tensorrt",
        "TensorRT EP: nodes by the provider that ran them",
        _needs_case("ort_tensorrt", "ort_profile"),
        partial(trials.partitions, backend="ort_tensorrt"),
        f"{LOG}; its first lines say why ONNX Runtime gave the nodes to another provider",
        after=("model", "ort_tensorrt"),
    ),
    Row(
        "partition_ort_tensorrt_rtx",
        "TensorRT-RTX EP: nodes by the provider that ran them",
        _needs_case("ort_tensorrt_rtx", "ort_profile"),
        partial(trials.partitions, backend="ort_tensorrt_rtx"),
        f"{LOG}; its first lines say why ONNX Runtime gave the nodes to another provider",
        after=("model", "ort_tensorrt_rtx"),
    ),
    Row(
        "layers",
        "TensorRT: the layers of an engine and the time of each",
        _needs_case("tensorrt", "trt_layers"),
        trials.times_layers,
        f"{LOG}; send the two JSON files under capture/trt_layers with the report of the problem",
        after=("model", "tensorrt"),
    ),
    Row(
        "join",
        "TensorRT: kernels joined with layers and ONNX nodes",
        lambda site: site.refusal(case_of("tensorrt"), "trt_nodes") or site.lacks_modules(*TABLES),
        trials.joins_layers,
        f"{LOG}; send capture/trt_nodes with the report of the problem: its ranges are spelled in a new way",
        after=("model", "tensorrt"),
    ),
    Row(
        "nsys",
        "Nsight Systems: permitted, captured and read",
        partial(trials.unwatched, profiler="nsys"),
        partial(trials.traces, profiler="nsys"),
        f"{LOG}; try `nsys profile --trace=cuda true` by hand, and an nsys of docs/versions.md",
        after=("model",),
    ),
    Row(
        "kineto",
        "torch.profiler: captured and read",
        partial(trials.unwatched, profiler="kineto"),
        partial(trials.traces, profiler="kineto"),
        f"{LOG}; no other profiler may hold CUPTI: end nsys, ncu and DCGM's profiling",
        after=("model",),
    ),
    Row(
        "ncu",
        "Nsight Compute: permitted, captured and read",
        partial(trials.unwatched, profiler="ncu"),
        trials.counts,
        f"{LOG}; docs/new-gpu.md has the permission of counters, and what to do where another tool holds them",
        after=("model", "nsys"),
    ),
    *map(_graph, GRAPHS),
    Row(
        "telemetry",
        "clocks, power and throttling while a case is measured",
        trials.unmeasured,
        trials.samples_telemetry,
        f"{LOG}; `nvidia-smi -q -d CLOCK,POWER` must show the clocks to this user",
        after=("model",),
    ),
    Row(
        "bandwidth",
        "the link and the memory of the GPU",
        trials.no_gpu,
        trials.measures_bandwidth,
        f"{LOG}; `nvidia-smi -q -d PCIE` tells the generation and width of the link under load",
    ),
    *(
        _format(name, least)
        for name, precision in registry.precisions().items()
        if (least := precision.least_share) is not None
    ),
    Row(
        "self_checks",
        "the checks of every run, and two rounds of a case agree",
        _nothing,
        trials.checks_itself,
        "end what else runs on the GPU (`nvidia-smi`), look for throttling in the telemetry row, and verify again",
        after=("model", "ort_cpu"),
    ),
)
"""In the order in which they are tried: each behind the rows whose files it reads, the longest at the end."""


GUIDE: Final = "docs/new-gpu.md"


@dataclass(frozen=True)
class Symptom:
    """Words of a reason, and what to do about them whichever row has it."""

    said: re.Pattern[str]
    next_step: str


def _symptom(said: str, step: str) -> Symptom:
    return Symptom(re.compile(said, re.IGNORECASE), step)


SYMPTOMS: Final = (
    _symptom(r"ERR_NVGPUCTRPERM", f"allow counters as {GUIDE} says (Counters), then verify again"),
    _symptom(r"needs row", "fix the row that is named first, then verify again"),
    _symptom(r"was not reached", "give verify more `--minutes`, or fewer rows with `--only`"),
    _symptom(
        r"compute capability [\d.]+: (needs|supports)",
        "nothing to fix: this GPU has no such hardware, or the runtime does not support it",
    ),
    _symptom(
        r"^no GPU|: no GPU|sees no GPU|NVML:",
        f"verify on the machine with the GPU; there, `nvidia-smi` must list it ({GUIDE}, Driver)",
    ),
    _symptom(r"libnvinfer\.so", "use the container, whose TensorRT is of the major version that ONNX Runtime wants"),
    _symptom(r"not on PATH", "use the container, which has the tool, or put it on PATH"),
    _symptom(r"needs a C\+\+ compiler", "apt install g++"),
    _symptom(
        r"is not installed|No module named|needs \S+ or newer",
        "use the container (`make image`), or install it from requirements/study.txt",
    ),
    _symptom(
        r"libcu\w+\.so|libcudnn|could not load",
        "use the container; else torch of CUDA 13 must be installed: it brings these libraries",
    ),
    _symptom(r"out of memory", "end what else holds the GPU's memory (`nvidia-smi`), then verify again"),
    _symptom(
        r"held by another tool|driver resource",
        "pause DCGM (`dcgmi profile --pause`) or end the other profiler, then verify again",
    ),
    _symptom(
        r"does not fit the driver|insufficient|CUDA driver version", f"install a newer driver ({GUIDE}, Driver)"
    ),
    _symptom(r"was not done after", "look at the end of the row's log; with a slow machine give more `--minutes`"),
    _symptom(
        r"was ended by SIG", "a crash of a library: send the row's log and `inferprof probe` with the report of it"
    ),
)
"""The first that fits counts."""


def next_step(row: Row, outcome: str, reason: str) -> str | None:
    """What to do about a row that failed or is not here; None for one that passed."""
    if outcome == "pass":
        return None
    return next((symptom.next_step for symptom in SYMPTOMS if symptom.said.search(reason)), row.next_step)
