"""Documents about an engine: its build, and what a second clock says of it."""

from __future__ import annotations

from typing import Any, ClassVar

from inferprof.documents.base import Count, Document, NotNegative, OfCase, Outcome, Positive


class Sparsity(Document):
    """How many layers have 2:4 sparse weights, and of how many the builder found the sparse kernel faster."""

    eligible: Count | None = None
    picked: Count | None = None


class LayerTensor(Document):
    """What a layer reads or writes: sizes, -1 where they change, and number format."""

    dims: list[int] = []
    dtype: str | None = None


class EngineLayer(Document):
    """A layer of an engine, as the builder lists it: tables.nodes.trt_engine.Layer."""

    name: str
    kind: str | None = None
    nodes: list[str] = []
    tactic: str | None = None
    weights: str | None = None
    inputs: list[LayerTensor] = []
    outputs: list[LayerTensor] = []


class Build(Outcome):
    """results/{machine}/engine/{case}.build.json: what became of an engine build."""

    bytes: Count | None = None
    seconds: NotNegative | None = None
    host_rss_bytes: Count | None = None
    options: dict[str, Any] = {}
    versions: dict[str, str | None] = {}
    target: Any = None
    profile: dict[str, Any] = {}
    sparsity: Sparsity | None = None
    layers: list[EngineLayer] = []
    """In the order in which they run; empty where the builder lists none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.options or self.versions or self.reason) and self.bytes is self.seconds is None:
            raise ValueError("lacks all that is known of a build")


class SummaryRow(Document):
    """A line of trtexec's performance summary, ms."""

    median: NotNegative
    min: NotNegative | None = None
    max: NotNegative | None = None
    mean: NotNegative | None = None


class ClockComparison(Document):
    """Our device median against trtexec's, or why they are not compared."""

    not_compared: str | None = None
    device_median_ns: Positive | None = None
    trtexec_median_ns: Positive | None = None
    ratio: Positive | None = None
    verdict: str | None = None


class Trtexec(Outcome):
    """results/{machine}/trtexec/{case}.json: trtexec as a second clock."""

    NEEDS: ClassVar[tuple[str, ...]] = ("case", "version", "comparison")

    case: OfCase | None = None
    version: str | None = None
    summary_ms: dict[str, SummaryRow] = {}
    comparison: ClockComparison | None = None
