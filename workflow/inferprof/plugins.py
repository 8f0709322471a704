"""The contracts: what a number format, a runtime, a profiler, a check and a plot are to the rest of the package.

A plug-in is a module-level constant of one of these dataclasses in the folder of its kind; `registry` finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from inferprof.allowed import Allowed, Option
from inferprof.case import Case, OptionValue, Shape, Variant
from inferprof.device import Buffer, Device, Where
from inferprof.documents.diagnosed import ChangedBy
from inferprof.documents.record import Tuning
from inferprof.findings import Clear, Finding, Frames, Level, Need
from inferprof.model.model_spec import ModelSpec

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import torch
    from matplotlib.figure import Figure

    from inferprof.machine.hardware import Machine
    from inferprof.ranks.supervise import Rank

Feeds = Mapping[str, "np.ndarray[Any, Any]"]
"""Name of an input or output → host array."""
Placement = Literal["pageable", "pinned", "device", "mapped"]
"""How end_to_end's inputs reach a GPU: from where the caller's arrays lie, by way of page-locked memory that they are
copied into first, or not at all, since they are there before the clock starts."""
PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
Boundary = Literal["device", "call", "end_to_end"]
BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)
Scope = Literal["case", "model"]


# --- runtimes --------------------------------------------------------------------------------------------------


class Session(Protocol):
    """A loaded model. It binds, enqueues and synchronises; `timing` owns the loop and the clock."""

    def bind(self, inputs: Mapping[str, Buffer]) -> None:
        """Say where the inputs lie while `enqueue` runs: the same addresses at each call."""

    def enqueue(self) -> None:
        """Queue one inference on the device's stream; may return before the device is done."""

    def outputs(self) -> dict[str, Buffer]:
        """Where the results of the last `enqueue` lie once the stream is done."""

    def capture_graph(self) -> bool:
        """Turn `enqueue` into one CUDA graph launch, after warm-up; False where the runtime cannot."""

    def memory(self) -> dict[str, int]:
        """What the runtime itself says of its memory, in bytes, by name."""

    def close(self) -> None:
        """Release the device; the session is unusable afterwards."""


@dataclass(frozen=True)
class OpenRequest:
    """What a backend needs to load a model."""

    artifact: Path
    """The .onnx, the .engine, or for torch backends the model's YAML file."""
    spec: ModelSpec
    precision: str
    shape: Shape
    variant: Variant
    device: Device
    threads: int
    """CPU threads that the runtime may use inside one operator."""
    native_profile: Path | None = None
    """Where the runtime writes its own profile; None switches it off. Never set for a benchmark."""
    rank: Rank | None = None
    """Which of several processes this is that share the model; None: the only one."""
    remembered: Sequence[Tuning] = ()
    """The part `tuning` of another record: configurations of kernels that are taken over instead of tried."""


@dataclass(frozen=True)
class BuildRequest:
    """What a backend needs to build an engine. `target` is a compute capability (12, 0), or None: this GPU's."""

    onnx: Path
    spec: ModelSpec
    shape: Shape
    variant: Variant
    out: Path
    target: tuple[int, int] | None = None


@dataclass(frozen=True)
class Backend:
    """A runtime. `options`: those of a variant that it understands (or their meaning alone), beside those of its
    builder (BuilderOption) and those that it hands on (RuntimeOption); `precisions` None means any ONNX graph."""

    name: str
    title: str
    where: Where | Literal["any"]
    """`any`: on the GPU where there is one, else on the CPU."""
    artifact: Literal["onnx", "engine", "torch"]
    open: Callable[[OpenRequest], AbstractContextManager[Session]]
    refuses: Callable[[Case, Machine], str | None]
    options: Mapping[str, Option | str] = field(default_factory=dict)
    precisions: frozenset[str] | None = None
    build: Callable[[BuildRequest], dict[str, Any]] | None = None
    """Writes `request.out` and returns facts for .build.json (seconds, bytes, versions, builder options)."""
    ahead_of_time: bool = False
    """Whether it can build for a GPU that is not in this machine."""
    compiles_ahead: Callable[[Variant], bool] = lambda variant: False
    """Whether a first inference compiles into a cache on disk that `inferprof compile` may fill while other jobs run,
    by choices that do not depend on timing, or that `forget_choices` removes."""
    forget_choices: Callable[[], None] = lambda: None
    """Remove from that cache what was chosen by timing it."""
    alone: Callable[[Variant], str | None] = lambda variant: None
    """Why two sessions of a variant cannot take turns in one process, as a pipeline has them; None where they can."""
    graph_memory: Callable[[Session, OpenRequest], dict[str, Any] | None] | None = None
    """On a session that has been measured: what CUDA graphs of several batch sizes hold; None: the variant asks for
    none. The session only has to be closed afterwards."""
    tuning: Callable[[Session], list[dict[str, Any]]] = lambda session: []
    """What the session's autotuners tried so far and chose: backends.triton_tuning.Decision.record of each choice."""
    operation: Callable[[Session], dict[str, Any] | None] = lambda session: None
    """What an inference of a model with a KV cache computes and reads: documents.record.Operation."""
    compile_cache: Callable[[], dict[str, int]] = dict
    """After a process's first inference: how often a compiler's cache on disk had what it wanted (`hits`), and how
    often it did not (`misses`); empty where nothing is compiled."""
    imports: tuple[str, ...] = ()
    """What each of its runs imports, beside the package: the fork server has it ready. Nothing that starts a thread
    (ONNX Runtime does) or looks for a GPU through CUDA when it is imported."""
    refuses_variant: Callable[[Variant, Case, Machine], str | None] = lambda variant, case, machine: None
    """Why a machine cannot run a case with the options of a variant; None where there is no objection."""


@dataclass(frozen=True)
class BuilderOption:
    """An option of a variant that the builders of engines understand."""

    name: str
    option: Option
    backends: frozenset[str]
    arguments: Callable[[Variant, Any], Mapping[str, Any]]
    """A variant, which may lack the option, and TensorRT's module → arguments of Polygraphy's CreateConfig."""


@dataclass(frozen=True)
class Quantizer:
    """How a torch backend quantizes a model: the values of the option `quantize`.

    `apply` changes the linear layers of a module in place, which is in the case's precision and on its device.
    """

    name: str
    title: str
    apply: Callable[[torch.nn.Module], None]
    refuses: Callable[[Case, Machine], str | None]


# --- number formats --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConvertRequest:
    """What a number format needs: the fp32 ONNX, the model's description and the options of the config."""

    onnx: Path
    spec: ModelSpec
    options: Mapping[str, OptionValue]
    out: Path


@dataclass(frozen=True)
class Tolerance:
    """How far from fp32 the outputs may be. Below `passes` dB of SQNR: a warning; below `warns`: a failure."""

    passes: float
    warns: float
    reason: str


Chains = Mapping[tuple[str, int], tuple[Any, ...]]
"""A node, by its first output, and one of its inputs → nodes that make of that tensor what stands in its place."""


@dataclass(frozen=True)
class Blocks:
    """How single products of an ONNX graph are put into a format with a scale per block."""

    chains: Callable[[ConvertRequest, Any], tuple[Any, Chains]]
    """A float graph → one that has the chains' constants, and the chains, in standard operators."""
    write: Callable[[ConvertRequest, Any, Collection[str]], Any]
    """A graph in FP16, and the names of products → it with these in blocks, as TensorRT takes them."""


@dataclass(frozen=True)
class Precision:
    """A number format, made from `source`: the fp32 ONNX graph, the torch model, or the latter where there is one."""

    name: str
    title: str
    source: Literal["onnx", "torch", "either"]
    convert: Callable[[ConvertRequest], dict[str, Any]]
    """Writes `request.out`; returns facts for the report (method, calibration, what isn't reproducible)."""
    tolerance: Tolerance
    storage: str
    """The type that the operands of its products have in the ONNX graph, as ONNX spells it in small letters."""
    computes: str
    """The format that its matrix products are to run in, as tables.trace.kernel_class tells it of a kernel."""
    roof: str
    """The ceiling that its products are held against: a column of peaks.csv, and a kind of ceilings.json."""
    quantized: bool = False
    """Whether its graph has quantizers."""
    plain: bool = False
    """Whether the gain of a quantized format is told against it; of several the first in order that was measured."""
    computes_too: tuple[str, ...] = ()
    """Further formats that its matrix products are to run in, of a mix."""
    by_node: bool = False
    """Whether it is made of the fp32 graph so that any node of it can be left out by itself."""
    blocks: Blocks | None = None
    """Of a format with a scale per block of which any product can be left out by itself."""
    colour: str | None = None
    """In every plot; None: one that is left."""
    order: int = 100
    """Where it stands among the formats: the smallest first."""
    least_share: float | None = None
    """Of the time in matrix products, what `inferprof verify` wants to run in it; None: verify does not try it. A
    narrow format leaves attention and the patch convolution in a wider one, which take longer than their part of the
    work; where a runtime quietly computes in another format the share is 0."""
    made_by: str = ""
    """What makes it, in a few words, for the documentation."""
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    allows: Mapping[str, Allowed] = field(default_factory=dict)
    """The options it understands, with their defaults; and what they may be."""
    needs_compute_capability: tuple[int, int] | None = None
    """The first GPU generation whose tensor cores compute in it; None: any."""
    tensorrt_alone: bool = False
    """Whether its graph has operators that TensorRT alone runs (model.block_emulation has others for them)."""


# --- profilers -------------------------------------------------------------------------------------------------

Run = Callable[[Sequence[str]], None]
"""Runs a command to its end; raises ToolError where it fails."""
Owner = Literal["node", "layer", "module"]
"""What a profiler's rows belong to: nodes of the ONNX graph, layers of an engine, operators and modules of torch."""


@dataclass(frozen=True)
class Join:
    """How a profiler's table of a case ties kernels to their owners."""

    attributed: Callable[[pd.DataFrame], pd.DataFrame]
    """The tidy table → a row per kernel and owner, with the columns of tables.nodes.attribution."""
    inferences: Callable[[pd.DataFrame], int]
    """How many inferences a tidy table is of; 0 where it holds none."""


@dataclass(frozen=True)
class Profiler:
    """A tool that watches a run. `command` wraps the run's own argv; `read` turns a capture into the tidy table."""

    name: str
    suffix: str
    refuses: Callable[[Case, Machine], str | None]
    command: Callable[[Sequence[str], Path], list[str]]
    read: Callable[[Path], pd.DataFrame]
    finish: Callable[[Path, Run], None] | None = None
    """After the wrapped run, in a folder that only we can read: makes the capture at the given path out of what the
    tool wrote, without secrets. All files in the folder are kept. None: the tool wrote the capture itself."""
    after: tuple[str, ...] = ()
    """Profilers whose table of the same case says what this one looks at. The first of them that watches the case in
    the study runs before it."""
    aim: Callable[[Path], Profiler] | None = None
    """With `after`: this profiler, told by that table where to look. Raises UserError where there is no such
    table, CaseFailed where it names nothing."""
    refusal: Callable[[str], str | None] | None = None
    """The reason why the tool could not watch, out of what it said: a result, as a failed measurement is."""
    otherwise: Callable[[str], Profiler | None] | None = None
    """Out of what the tool said: who watches the run once more, in a way that may see what this one did not."""
    iterations: int = 10
    """How many iterations of a run it watches."""
    read_iterations: Callable[[Path, str], pd.DataFrame] | None = None
    """As `read`, with the ranges of a name, which another program opens around an inference, as iterations. Raises
    UserError where there is none of that name. None: only the ranges of its table are renamed."""
    rank: int = 100
    """Of several profilers that tell the same of a case, that of the smallest rank speaks for it."""
    traces: bool = False
    """It traces iterations, kernels and copies: a timeline."""
    counts: bool = False
    """It reads counters of single kernels."""
    session: bool = False
    """It tells which execution provider ran each node of an ONNX Runtime session."""
    inside: str | None = None
    """The module that lets a program which is not ours be recorded from within: explain/inside.py."""
    owner: Owner | None = None
    """What its rows belong to; None where that is nothing but the case."""
    join: Join | None = None
    """With `owner`: how it ties kernels to it. None where it times the owners themselves and sees no kernel."""


@dataclass(frozen=True)
class Check:
    """A question about a case's measurements, with what it needs to be answered.

    `run` gives at least one finding, or Clear and why; it raises NotAssessed where it lacks more than `needs` says.
    """

    name: str
    title: str
    level: Level
    needs: tuple[Need, ...]
    run: Callable[[Frames], list[Finding] | Clear]
    by: ChangedBy = "caller"
    """Who or what changes where its advice is followed, unless a finding says more: Finding.change."""
    scope: Scope = "case"
    """model: it looks at the model's other cases too (Frames.peers)."""


def check(
    name: str, title: str, level: Level, needs: tuple[Need, ...], *, by: ChangedBy = "caller", scope: Scope = "case"
) -> Callable[[Callable[[Frames], list[Finding] | Clear]], Check]:
    """A decorator: the function that answers the question, as a Check."""
    return lambda run: Check(name, title, level, needs, run, by, scope)


@dataclass(frozen=True)
class Plot:
    """A plot of one model's measurements: a row per case, with the columns of tables.join.measured.

    `needs` maps a column to how many different values of it make the plot worth drawing.
    """

    name: str
    title: str
    caption: str
    needs: Mapping[str, int]
    draw: Callable[[pd.DataFrame], Figure]
    place: int
    """Where it stands among the plots of a model: the smallest first."""
    section: str
    """The title of the section of the report that it belongs to."""
    asked: bool = False
    """It draws what a study asks for by itself: of one that does not, nobody says that it was not drawn."""
