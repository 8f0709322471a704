"""Documents about a machine: what it is, and how fast its link and its GPU are."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from inferprof.documents.base import (
    Count,
    Document,
    Elapsed,
    Measured,
    Nanoseconds,
    NotNegative,
    Outcome,
    Positive,
    Unknown,
    require,
)


class GpuFacts(Document):
    """A GPU as NVML tells of it."""

    name: str
    used: bool = False
    compute_capability: str | Unknown | None = None
    memory_mib: Count | Unknown | None = None
    sm_count: Count | Unknown | None = None
    integrated: bool | Unknown | None = None
    host_page_tables: bool | Unknown | None = None
    clock_sm_max_mhz: NotNegative | Unknown | None = None
    clock_memory_max_mhz: NotNegative | Unknown | None = None
    power_limit_w: NotNegative | Unknown | None = None
    power_limit_default_w: NotNegative | Unknown | None = None
    mig: bool | Unknown | None = None
    mig_instance: bool | Unknown | None = None
    ecc: bool | Unknown | None = None
    persistence_mode: bool | Unknown | None = None
    pcie_generation: Count | Unknown | None = None
    pcie_generation_max: Count | Unknown | None = None
    pcie_width: Count | Unknown | None = None
    pcie_width_max: Count | Unknown | None = None

    def __post_init__(self) -> None:
        """A driver says 0 of what it does not tell, as under a hypervisor."""
        for name in ("memory_mib", "sm_count", "clock_sm_max_mhz", "clock_memory_max_mhz"):
            if getattr(self, name) == 0:
                setattr(self, name, Unknown(reason="the driver says 0"))

    @property
    def reads_host_memory(self) -> bool:
        """Whether it reads the host's arrays where they lie, at the speed of a memory: shared, or coherent."""
        return self.integrated is True or self.host_page_tables is True


class CpuFacts(Document):
    """The CPU and what of it may be used."""

    model: Any
    cores: Count | Unknown | None = None
    threads: Count | Unknown | None = None
    threads_usable: Count | Unknown | None = None
    quota_cores: NotNegative | Unknown | None = None
    memory_mib: Count | Unknown | None = None
    governor: str | Unknown | None = None


Versions = dict[str, str | Unknown | None]


class Environment(Outcome):
    """results/{machine}/environment.json: what the machine is and what is installed on it."""

    NEEDS: ClassVar[tuple[str, ...]] = ("gpus",)

    machine: str | None = None
    gpus: list[GpuFacts] | Unknown | None = None
    driver: Versions = {}
    processes_on_gpu: list[Any] | Unknown | None = None
    performance_counters: bool | Unknown | None = None
    packages: Versions = {}
    nvinfer: list[Count] = []
    onnxruntime_providers: list[str] | Unknown | None = None
    tools: Versions = {}
    container: dict[str, Any] = {}
    cpu: CpuFacts | None = None
    system: dict[str, Any] = {}
    git: str | Unknown | None = None


Direction = Literal["h2d", "d2h"]
Bytes = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
"""A size in bytes as a key of JSON."""
BySize = dict[Bytes, Nanoseconds]
"""Bytes → the ns that moving them takes."""


class Curve(Document):
    """How fast bytes are moved, by their number."""

    gb_per_s: Positive
    latency_ns: Elapsed
    by_size: BySize


class Link(Document):
    """Copies of pageable and of page-locked arrays."""

    pinned: Curve
    pageable: Curve


class Bandwidth(Outcome):
    """results/{machine}/bandwidth.json: the link between host and device, and the device's memory."""

    NEEDS: ClassVar[tuple[str, ...]] = ("method", "h2d", "d2h", "d2d")

    method: str | None = None
    h2d: Link | None = None
    d2h: Link | None = None
    d2d: Curve | None = None
    h2h: Curve | None = None

    def link(self, direction: Direction) -> Link:
        """The copies in a direction; there are some where the status is ok."""
        link = self.h2d if direction == "h2d" else self.d2h
        assert link is not None
        return link


class Message(Document):
    """How long an operation takes with messages of one size, and the bus bandwidth of that."""

    ns: Positive
    spread_ns: NotNegative
    """The slowest rank's less the fastest's."""
    gb_per_s: Positive


class Messages(Document):
    """An operation between GPUs, by the size of its messages in bytes."""

    by_size: Annotated[dict[Bytes, Message], Meta(min_length=1)]


class Topology(Measured):
    """How GPUs are connected: NVLinks that are up, of each; what each pair has in common on PCIe."""

    NEEDS: ClassVar[tuple[str, ...]] = ("nvlinks", "pcie")

    nvlinks: list[Count] | None = None
    pcie: dict[str, str] | None = None


class Links(Outcome):
    """What `inferprof links` measures between GPUs."""

    NEEDS: ClassVar[tuple[str, ...]] = ("method", "ranks", "through", "operations", "topology")

    method: str | None = None
    ranks: Count | None = None
    through: dict[str, Any] | None = None
    operations: dict[str, Messages] | None = None
    copies: dict[str, Any] = {}
    topology: Topology | None = None


class GemmCeiling(Document):
    """The fastest matrix product of a format, or why there is none."""

    flops_per_s: Positive | None = None
    by_size: dict[str, Elapsed] = {}
    not_measured: str | None = None


class MemoryCeiling(Document):
    """The fastest reading or writing of the GPU's memory, or why it is not known."""

    bytes_per_s: Positive | None = None
    not_measured: str | None = None


class Ceilings(Outcome):
    """results/{machine}/ceilings.json: how fast the GPU computes and reads at best, or why that is not known."""

    not_measured: str | None = None
    method: str | None = None
    gpu: str | None = None
    torch: str | None = None
    l2_bytes: Count | None = None
    gemm: dict[str, GemmCeiling] | None = None
    memory: dict[str, MemoryCeiling] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.status == "ok" and self.not_measured is None:
            require(self, ("gemm", "memory"), "and no `not_measured` says why")
