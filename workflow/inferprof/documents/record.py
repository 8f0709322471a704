"""Records: what one run measured of a case, or what a run under a profiler left behind."""

from __future__ import annotations

import statistics
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from inferprof.documents.base import (
    Count,
    Document,
    Elapsed,
    Measured,
    Nanoseconds,
    NotNegative,
    Number,
    OfCase,
    Outcome,
    Percent,
    Positive,
    Share,
    Text,
    check_divided,
)
from inferprof.documents.telemetry import Telemetry


class Operation(Document):
    """`tokens` of each row are read behind `context` tokens that the cache holds: none is a prefill, one of them a
    decode step. Bytes and FLOPs are those of the whole batch; of tables that rows are looked up in there are none."""

    tokens: Annotated[int, Meta(ge=1, le=2**62)]
    context: Count
    weights_read: Count
    kv_read: Count
    kv_written: Count
    flops: Count | None = None
    not_counted: str | None = None
    """Why there are no FLOPs."""


SCHEMA = 1
"""The version of a benchmark record."""
FASTEST_NS = 100
"""No inference has a median below this: reading the clock twice takes about as long."""


class Boundary(Measured):
    """The samples of a boundary in ns, how its loop went, or why it was not measured."""

    NEEDS: ClassVar[tuple[str, ...]] = ("samples_ns",)

    samples_ns: Annotated[list[Nanoseconds], Meta(min_length=1)] | None = None
    span_ns: list[Number] | None = None
    warmup: Count | None = None
    settled: bool = True
    stopped_by: str | None = None
    interval: NotNegative | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples_ns and min(self.samples_ns) < FASTEST_NS:
            median = statistics.median(self.samples_ns)
            if median < FASTEST_NS:
                raise ValueError(f"a median of {median:.3g} ns is impossible: at least {FASTEST_NS} ns")


class Boundaries(Document):
    """The boundaries of an inference."""

    device: Boundary | None = None
    call: Boundary | None = None
    end_to_end: Boundary | None = None


class Stage(Measured):
    """The samples of a stage of end_to_end in ns, or why it was not measured."""

    NEEDS: ClassVar[tuple[str, ...]] = ("samples_ns",)

    samples_ns: Annotated[list[Elapsed], Meta(min_length=1)] | None = None


class Throughput(Measured):
    """How many inferences there were in how many seconds."""

    NEEDS: ClassVar[tuple[str, ...]] = ("inferences", "seconds")

    inferences: Annotated[int, Meta(ge=1, le=2**62)] | None = None
    seconds: Annotated[float, Meta(ge=1e-6, le=1e9)] | None = None
    span_ns: list[Number] | None = None
    sessions: Count | None = None
    overlap: Share | None = None


class First(Document):
    """First use, ns."""

    load_ns: Elapsed | None = None
    first_inference_ns: Elapsed | None = None
    compile_cache: dict[str, Count] = {}
    """What a compiler took from the study's cache (`hits`) and what it compiled anew (`misses`)."""


class GraphRow(Document):
    """What is held once a number of CUDA graphs is captured, bytes; and the times of the latest graph, ns."""

    graphs: Count
    allocated: Count
    reserved: Count
    pools: Count
    graph_allocated: Count
    graph_reserved: Count
    device_used: Count | None
    static_inputs: Count
    static_outputs: Count
    batch: Count | None = None
    capture_ns: Elapsed | None = None
    eager_ns: Elapsed | None = None
    replay_ns: Elapsed | None = None
    difference: NotNegative | None = None
    intact: bool | None = None


class Segments(Document):
    """What torch's allocator holds in one pool, bytes."""

    pool: str
    of_graphs: bool
    segments: Count
    largest_segment: Count
    reserved: Count
    allocated: Count
    inactive: Count


class Graphs(Measured):
    """What CUDA graphs of several batch sizes hold."""

    NEEDS: ClassVar[tuple[str, ...]] = ("pool", "order", "inputs", "rows")

    pool: str | None = None
    order: str | None = None
    inputs: str | None = None
    stopped: str | None = None
    least: Count | None = None
    rows: list[GraphRow] | None = None
    segments: list[Segments] = []


class Memory(Document):
    """Bytes in use."""

    host_rss_bytes: Count | None = None
    device_bytes: Annotated[int, Meta(ge=-(2**62), le=2**62)] | None = None
    """What came into use on the GPU; None where others gave back more meanwhile than the case took."""
    runtime: dict[str, Any] = {}
    graphs: Graphs | None = None

    def __post_init__(self) -> None:
        if self.device_bytes is not None and self.device_bytes < 0:
            self.device_bytes = None


class SelfCheck(Document):
    """Whether a number is what it claims to be; `passed` is None where that could not be checked."""

    passed: bool | None = None
    detail: str | None = None
    not_measured: str | None = None


ElementType = Annotated[
    str,
    Meta(pattern=r"^(bool|object|u?int(8|16|32|64)|float(16|32|64|128)|complex(64|128)|[<>=|]?[SU][0-9]{0,9})$"),
]
"""As NumPy calls it."""


class Array(Document):
    """An input or output: its shape, type, and of an output a digest."""

    shape: list[Count]
    dtype: ElementType
    sha256: str | None = None
    finite: bool | None = None


class Steal(Measured):
    """The share of the CPUs' time that a hypervisor took."""

    NEEDS: ClassVar[tuple[str, ...]] = ("percent",)

    percent: Percent | None = None


class Threads(Measured):
    """The threads of the process that worked while boundaries took turns: how long each was on a core, and waited."""

    NEEDS: ClassVar[tuple[str, ...]] = ("seconds", "on_core", "waited")

    seconds: Positive | None = None
    on_core: list[NotNegative] | None = None
    waited: list[NotNegative] | None = None


class Host(Document):
    """How fast the host was itself: readings of the yardstick, ns."""

    yardstick_ns: Annotated[list[Nanoseconds], Meta(min_length=1)]
    yardstick_cpu_ns: Annotated[list[Nanoseconds], Meta(min_length=1)]
    steal: Steal
    threads: Threads | None = None


class Trial(Document, omit_defaults=False):
    """A configuration of a kernel that its autotuner tried; no median where it did not compile or run."""

    config: dict[str, Any]
    median_ns: Nanoseconds | None = None
    """As Triton timed it: with an empty L2 cache."""
    seconds: NotNegative = 0.0
    """Compiling and timing together."""
    compile_s: NotNegative = 0.0
    compiled: Count | None = 0
    programs: Count | None = None
    """Blocks of the launch."""
    waves: NotNegative | None = None
    """programs / (SMs · blocks_per_sm)."""
    blocks_per_sm: Count | None = None
    """How many an SM holds at once, by the driver."""
    occupancy: Share | None = None
    """The share of its threads that they are."""
    warps: Count | None = None
    registers: Count | None = None
    spills: Count | None = None
    shared_bytes: Count | None = None


class Tuning(Document):
    """What an autotuner chose for a kernel."""

    kernel: str
    key: dict[str, Any]
    source: str
    offered: Count
    seconds: NotNegative
    winner: Count
    trials: Annotated[list[Trial], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if self.winner >= len(self.trials):
            raise ValueError(f"winner {self.winner} is none of {len(self.trials)} trials")


class RunEnvironment(Document):
    """What a run ran on."""

    git: str | None = None
    python: str | None = None
    packages: dict[str, str | None] = {}
    imported: list[str] | None = None
    """What was imported before the run began: the fork server's libraries, whose time is in no `load_ns`."""
    gpu: dict[str, Any] | None = None
    processes_on_gpu: Any = None


class OfRank(Document):
    """What is known of one of several processes that share a model."""

    rank: Count | None = None
    telemetry: Telemetry | None = None
    memory: dict[str, Any] = {}
    outputs: dict[str, Array] = {}


class Run(Outcome):
    """What a measured and a watched run have in common."""

    placement: str | None = None
    options: dict[str, Any] = {}
    iterations: Stage | None = None
    tuning: list[Tuning] = []
    operation: Operation | None = None
    """Of a model with a KV cache."""
    outputs: dict[str, Array] = {}
    ranks: list[OfRank] = []
    """One per rank of a case that is divided (option `parallel`); what rank 0 measures is the case's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_divided(self.options if self.status == "ok" else {})


class Record(Run, kw_only=True):
    """results/{machine}/benchmark/{case}/r{round}.json: the measurements of a case in one round."""

    NEEDS: ClassVar[tuple[str, ...]] = ("boundaries",)

    schema: int
    case: OfCase
    round: Count
    machine: Text
    protocol: dict[str, Any]
    started: str
    environment: RunEnvironment
    boundaries: Boundaries | None = None
    stages: dict[str, Stage] = {}
    throughput: dict[str, Throughput] = {}
    first: First | None = None
    memory: Memory | None = None
    checks: dict[str, SelfCheck] = {}
    inputs: dict[str, Array] = {}
    host: Host | None = None
    telemetry: Telemetry | None = None

    def __post_init__(self) -> None:
        """A number that fails a check of itself is no measurement, whatever the status says."""
        if self.schema != SCHEMA:
            raise ValueError(f"schema: {SCHEMA} was expected (version of a benchmark record)")
        failed = [f"{name}: {check.detail}" for name, check in self.checks.items() if check.passed is False]
        if failed and self.status == "ok":
            self.status, self.reason = "failed", f"self-check {'; '.join(failed)}"
        super().__post_init__()


class Watched(Run):
    """results/{machine}/capture/{profiler}/{case}.record.json: the same case in a run that a profiler watched."""

    schema: int | None = None
    case: OfCase | None = None
    round: Count | None = None
    machine: str | None = None
    protocol: dict[str, Any] = {}
    started: str | None = None
    environment: RunEnvironment | None = None
    boundaries: Boundaries | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.iterations and not self.case:
            raise ValueError("has `iterations`, but no `case`")
