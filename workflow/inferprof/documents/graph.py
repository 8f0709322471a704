"""Documents about an ONNX graph: how it was made, what it holds, computes and loses."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from inferprof.documents.base import Cosine, Count, Document, Measured, NotNegative, Number, Outcome, Share, require


class Convert(Outcome):
    """results/onnx/{model}/{precision}.convert.json: how the graph was exported or converted."""

    options: dict[str, Any] = {}
    method: str | None = None
    architecture: str | None = None
    origin: str | None = None
    """Where the weights come from."""
    sha256: str | None = None
    made_from: dict[str, str] = {}
    """The model's own files → their SHA-256: its description, the user's Python, ONNX files and data."""
    not_reproducible: list[str] | None = None
    bytes: Count | None = None
    seconds: NotNegative | None = None


class HighPrecision(Document):
    """A product of a graph that is computed in more bits than its format has."""

    name: str
    with_weight: bool
    dtype: str | None = None
    macs_share: Share | None = None


class SparseProduct(Document):
    """A product whose weights are half zeros: how many fours of them break 2:4, and what is in the way."""

    name: str
    dtype: str
    k: Count
    n: Count
    fours: Count
    broken: Count
    obstacles: list[str]


class Audit(Outcome):
    """results/onnx/{model}/{precision}.audit.json: what the graph is made of."""

    NEEDS: ClassVar[tuple[str, ...]] = (
        *("macs_share", "weight_bytes", "casts", "quantizers", "dequantizers"),
        *("softmax", "normalization", "high_precision"),
    )
    SAID: ClassVar[tuple[str, ...]] = ("shape", "macs")

    precision: str | None = None
    shape: str | UnsetType | None = UNSET
    macs: Count | UnsetType | None = UNSET
    macs_share: dict[str, Share] | None = None
    weight_bytes: dict[str, Count] | None = None
    casts: Count | None = None
    quantizers: Count | None = None
    dequantizers: Count | None = None
    softmax: dict[str, Count] | None = None
    normalization: dict[str, Count] | None = None
    high_precision: list[HighPrecision] | None = None
    products_of_unknown_size: list[str] = []
    products_in_loops_of_unknown_length: dict[str, Count] = {}
    branches: list[dict[str, Any]] = []
    assumed_sizes: list[str] = []
    no_opset: bool = False
    normalization_in_pieces: list[str] = []
    not_tensorrt_int8: dict[str, str] = {}
    quantized_nodes: list[str] = []
    in_bodies: dict[str, Count] = {}
    """Nodes that have bodies, with their operators → how many nodes are in these."""
    uncounted_domains: list[str] = []
    foreign_domains: dict[str, list[str]] = {}
    collectives: dict[str, Count] = {}
    ranks: Count = 1
    unaligned: list[dict[str, Any]] = []
    sparse: list[SparseProduct] = []
    advice: list[str] | None = None


class Left(Document):
    """A node that a parser leaves to another runtime, why, and the parser's words."""

    node: str
    op_type: str
    why: str
    words: str


class Part(Measured):
    """What a parser takes of a graph, in how many subgraphs, and what it leaves."""

    NEEDS: ClassVar[tuple[str, ...]] = ("nodes", "taken", "subgraphs", "left")

    nodes: Count | None = None
    taken: Count | None = None
    subgraphs: list[Count] | None = None
    left: list[Left] | None = None


class Partition(Outcome):
    """results/onnx/{model}/{precision}.partition.json: what TensorRT's parser takes of the graph."""

    NEEDS: ClassVar[tuple[str, ...]] = ("by", "dynamic", "static")
    SAID: ClassVar[tuple[str, ...]] = ("looped",)

    by: str | None = None
    dynamic: Part | None = None
    static: Part | None = None
    looped: list[str] | UnsetType | None = UNSET
    collectives: list[str] = []

    @property
    def left(self) -> dict[str, Left]:
        """Name → what the parser leaves, asked in either way."""
        return {node.node: node for part in (self.dynamic, self.static) if part for node in part.left or ()}

    @property
    def in_loops(self) -> list[str]:
        """The nodes that are loops; none where that is not known."""
        return self.looped or []


def _sum(*parts: int | UnsetType | None) -> int | None:
    """None where one is not known."""
    sizes = [part for part in parts if isinstance(part, int)]
    return sum(sizes) if len(sizes) == len(parts) else None


Size = Annotated[int, Meta(ge=1, le=2**62)]


class Gemm(Document, frozen=True):  # type: ignore[misc]  # msgspec allows it
    """What a product is to a kernel: `count` times m × k by k × n."""

    m: Size
    n: Size
    k: Size
    count: Size
    batch_in: Literal["m", "count"]
    """Which of the two grows with the batch."""


class Node(Document, omit_defaults=False):
    """A node that a runtime executes. `flops` is None where the operator or a size is not known; bytes likewise."""

    name: str
    op: str
    dtype: str
    """What a product computes in; of others the type of the first input."""
    product: bool
    flops: Count | None
    read: Count | None
    """Bytes of activations."""
    written: Count | None
    weights: Count | None
    """Bytes of constants, of the rows alone where it picks some."""
    sparse: bool = False
    """Whether of each four weights along its reduction two or more are zeros, as 2:4 sparse kernels need them."""
    gemm: Gemm | None = None
    """The matrix products that a product is computed by."""
    times: Count | None = 1
    """How often an inference runs it, which FLOPs and bytes count; None, and so are these, where only a run tells."""

    @property
    def operands(self) -> int | None:
        """The bytes that it reads."""
        return _sum(self.read, self.weights)

    @property
    def moved(self) -> int | None:
        """The bytes that it reads and writes."""
        return _sum(self.read, self.weights, self.written)


class Cost(Outcome):
    """results/onnx/{model}/{precision}.{shape}.cost.json: FLOPs and bytes of each node."""

    NEEDS: ClassVar[tuple[str, ...]] = ("nodes",)
    SAID: ClassVar[tuple[str, ...]] = ("inputs", "outputs", "weights")

    shape: str | None = None
    inputs: Count | UnsetType | None = UNSET
    outputs: Count | UnsetType | None = UNSET
    weights: Count | UnsetType | None = UNSET
    nodes: list[Node] | None = None

    @property
    def moved(self) -> int | None:
        """The bytes that one kernel for all would move: weights, inputs and outputs, each once."""
        return _sum(self.inputs, self.outputs, self.weights)

    @property
    def in_weights(self) -> int | None:
        """The bytes of the weights; None where one's size is not known."""
        return _sum(self.weights)


class Sensitive(Document, omit_defaults=False):
    """A unit of a graph: a node, or a product with the node that its result is added in."""

    name: str
    op: str
    nodes: list[str]
    alone_db: Number | None
    """SQNR with it alone in the format; None where nothing is lost, or no number is left."""
    overflow: bool
    """Whether values are not finite with it alone in the format."""
    left_out_share: Number
    """Of what all units lose together on a typical sample (the geometric mean), what goes where it alone is left out;
    negative where its errors help."""
    left_out_ci: Number | None = None
    """95 % of it over samples, as far as that reaches towards 0: where it holds 0, it is a tie; None where it was
    left out of one sample."""
    left_out_place: Count | None = None
    """Its place where units are ranked by what goes, drawn towards the loss alone as far as that is noise."""
    cause: str | None = None


class LeftOut(Document, omit_defaults=False):
    """So many units, the worst first, were left out, and what all others lose together."""

    left_out: Count
    joint_db: Number | None
    overflow: bool
    meets: bool
    """Whether that meets the format's tolerance."""


class Sensitivity(Outcome):
    """results/onnx/{model}/{precision}.sensitivity.json: what each unit of a graph loses in a number format."""

    NEEDS: ClassVar[tuple[str, ...]] = ("units", "evaluations", "samples")

    precision: str | None = None
    pretrained: bool | None = None
    samples: Count | None = None
    samples_each: Count | None = None
    """How many of them try each unit alone."""
    left_out_each: Count | None = None
    """Of how many each unit was left out."""
    evaluations: dict[str, Count] | None = None
    """Passes over all samples, by what they are for."""
    seconds: NotNegative | None = None
    joint_db: Number | None = None
    predicted_db: Number | None = None
    """The sum of the losses alone."""
    additive: bool | None = None
    reproducible: dict[str, Number | None] = {}
    """How well the rankings, alone and left out, agree with those of other samples (Spearman's rho); the second of
    units that are no tie."""
    in_bodies: dict[str, Count] = {}
    """As in the audit: nodes that no unit is made of."""
    units: list[Sensitive] | None = None
    """The worst first."""
    tried: list[LeftOut] = []
    exclude: list[str] | None = None
    """The nodes to leave out for the format's tolerance; None: no set that was tried met it."""


class Tolerance(Document):
    """From which SQNR on an output passes, and down to which it warns."""

    passes_db: Number
    warns_db: Number
    reason: str | None = None


class Distance(Document):
    """How far an output is from fp32's."""

    sqnr_db: Number | None
    cosine_min: Cosine | None
    max_abs_error: NotNegative | None
    cosine_mean: Cosine | None = None
    max_abs_expected: NotNegative | None = None
    variation_db: Number | None = None
    """How far the error is below what changes from sample to sample; None where nothing does, or it is not known."""


class Agreement(Document):
    """How often the answers agree: the first class of a classifier, or the neighbours of an embedding."""

    kind: str
    share: Share | None = None
    spearman: Cosine | None = None
    shared_neighbours: Share | None = None
    of: Count | None = None
    neighbours: Count | None = None

    def __post_init__(self) -> None:
        if self.kind == "top-1" and self.share is None:
            raise ValueError("top-1 without a `share`")


NOT_IN = "nothing in the graph is in"
"""How the reason begins of a graph that claims a format in which nothing could be quantized."""
NAN_IN_FP32 = "fp32 itself gives NaN"
"""How the reason begins where the outputs that others are compared with are no numbers in part."""

BESIDE_VARIATION = "the error is large beside what the input changes"
"""How the reason begins where an output hardly changes with the input, so that its SQNR is that of a constant."""


class Accuracy(Outcome):
    """results/onnx/{model}/{precision}.accuracy.json: the graph's outputs against fp32's."""

    NEEDS: ClassVar[tuple[str, ...]] = ("outcome", "reason")

    outcome: Literal["pass", "warn", "fail", "not measured"] | None = None
    precision: str | None = None
    seed: Count | None = None
    pretrained: bool | None = None
    random_inputs: list[str] | None = None
    """Inputs that were random numbers."""
    samples: Count | None = None
    source: str | None = msgspec.field(default=None, name="from")
    tolerance: Tolerance | None = None
    outputs: dict[str, Distance] | None = None
    agreement: Agreement | None = None
    collapse: list[Any] = []

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.status == "failed":
            self.outcome = "not measured"
        if self.outcome != "not measured":
            require(self, ("tolerance", "outputs"), "though its outcome is none without numbers")
