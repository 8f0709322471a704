"""Settings of ONNX Runtime: a constant per option of a variant. What a variant leaves out stays its default.

`SESSION` are attributes of SessionOptions, `ENTRIES` entries of its config, `CUDA` options of the CUDA provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from inferprof.case import Variant
from inferprof.runtime_option import RuntimeOption

if TYPE_CHECKING:
    import onnxruntime

ALL: Final = frozenset({"ort_cpu", "ort_cuda"})
CPU: Final = frozenset({"ort_cpu"})
CUDA: Final = frozenset({"ort_cuda"})
ON: Final = {True: "1", False: "0"}
OFF: Final = {False: "0", True: "1"}
_DOCS: Final = "https://onnxruntime.ai/docs"
_KEYS: Final = (
    "https://github.com/microsoft/onnxruntime/blob/main/include/onnxruntime/core/session/"
    "onnxruntime_session_options_config_keys.h"
)
_THREADS: Final = f"{_DOCS}/performance/tune-performance/threading.html"
_CUDA: Final = f"{_DOCS}/execution-providers/CUDA-ExecutionProvider.html"

CONVOLUTIONS: Final = frozenset({"Conv", "ConvTranspose", "ConvInteger", "QLinearConv"})
GELU: Final = frozenset({"Gelu", "Erf"})
"""Exporters write Gelu as Erf and some arithmetic, which ONNX Runtime fuses."""
GRAPH_OPTIMIZATION: Final = RuntimeOption(
    name="graph_optimization",
    meaning="how far ONNX Runtime rewrites the graph: `all` (default), `extended`, `basic`, `disabled`",
    backends=ALL,
    key="graph_optimization_level",
    values={
        "all": "ORT_ENABLE_ALL",
        "extended": "ORT_ENABLE_EXTENDED",
        "basic": "ORT_ENABLE_BASIC",
        "disabled": "ORT_DISABLE_ALL",
    },
    source=f"{_DOCS}/performance/model-optimizations/graph-optimizations.html",
    tries=("extended", "basic"),
)
EXECUTION: Final = RuntimeOption(
    name="execution",
    meaning="nodes run one after another (`sequential`, default) or branches side by side (`parallel`)",
    backends=CPU,
    key="execution_mode",
    values={"sequential": "ORT_SEQUENTIAL", "parallel": "ORT_PARALLEL"},
    source=_THREADS,
    tries=("parallel",),
)
ARENA: Final = RuntimeOption(
    name="arena",
    meaning="the CPU's memory comes from an arena that keeps it; on unless given",
    backends=ALL,
    key="enable_cpu_mem_arena",
    values={True: True, False: False},
    source=f"{_DOCS}/performance/tune-performance/memory.html",
    tries=(False,),
    tried_on=CPU,
)
MEMORY_PATTERN: Final = RuntimeOption(
    name="memory_pattern",
    meaning="the first inference's allocations are made as one block for the next; on unless given",
    backends=ALL,
    key="enable_mem_pattern",
    values={True: True, False: False},
    source=f"{_DOCS}/performance/tune-performance/memory.html",
    tries=(False,),
)
SPINNING: Final = RuntimeOption(
    name="spinning",
    meaning="threads wait for work by spinning, which takes a core; on unless given",
    backends=ALL,
    key="session.intra_op.allow_spinning",
    values=ON,
    source=_THREADS,
    tries=(False,),
    tried_on=CPU,
)
DENORMAL_AS_ZERO: Final = RuntimeOption(
    name="denormal_as_zero",
    meaning="the CPU takes denormal numbers for 0; off unless given",
    backends=CPU,
    key="session.set_denormal_as_zero",
    values=OFF,
    source=_KEYS,
    tries=(True,),
)
DYNAMIC_BLOCKS: Final = RuntimeOption(
    name="dynamic_blocks",
    meaning="work is dealt to threads in blocks that shrink, this number says how fast; 0 (default) deals it at once",
    backends=CPU,
    key="session.dynamic_block_base",
    values={},
    source=_KEYS,
    tries=(4,),
)
GELU_APPROXIMATION: Final = RuntimeOption(
    name="gelu_approximation",
    meaning="Gelu by its approximation with tanh, which changes results; off unless given",
    backends=ALL,
    key="optimization.enable_gelu_approximation",
    values=OFF,
    source=_KEYS,
    tries=(True,),
    operators=GELU,
)
CONV_SEARCH: Final = RuntimeOption(
    name="conv_search",
    meaning="how cuDNN's convolutions are chosen: `exhaustive` (default), `heuristic`, `default`",
    backends=CUDA,
    key="cudnn_conv_algo_search",
    values={"exhaustive": "EXHAUSTIVE", "heuristic": "HEURISTIC", "default": "DEFAULT"},
    source=_CUDA,
    tries=("heuristic",),
    operators=CONVOLUTIONS,
)
PREFER_NHWC: Final = RuntimeOption(
    name="prefer_nhwc",
    meaning="convolutions with channels last; off unless given",
    backends=CUDA,
    key="prefer_nhwc",
    values=OFF,
    source=_CUDA,
    tries=(True,),
    operators=CONVOLUTIONS,
)
TUNABLE_OP: Final = RuntimeOption(
    name="tunable_op",
    meaning="kernels of an operator are tried in the first inferences, the fastest stays; off unless given",
    backends=CUDA,
    key="tunable_op_enable",
    values=OFF,
    source=_CUDA,
    tries=(True,),
)
CUDA_ARENA: Final = RuntimeOption(
    name="cuda_arena",
    meaning="how the arena on the GPU grows: `power_of_two` (default) or `as_requested`",
    backends=CUDA,
    key="arena_extend_strategy",
    values={"power_of_two": "kNextPowerOfTwo", "as_requested": "kSameAsRequested"},
    source=_CUDA,
)
SESSION: Final = (GRAPH_OPTIMIZATION, EXECUTION, ARENA, MEMORY_PATTERN)
ENTRIES: Final = (SPINNING, DENORMAL_AS_ZERO, DYNAMIC_BLOCKS, GELU_APPROXIMATION)
OF_PROVIDER: Final = (CONV_SEARCH, PREFER_NHWC, TUNABLE_OP, CUDA_ARENA)
ENUMS: Final = {GRAPH_OPTIMIZATION.name: "GraphOptimizationLevel", EXECUTION.name: "ExecutionMode"}
"""Attributes that are given a member of an enumeration of onnxruntime's."""
TUNING: Final = "tunable_op_tuning_enable"
"""Without it tunable operators look up what was tuned before, and try nothing."""


def apply(options: onnxruntime.SessionOptions, variant: Variant) -> None:
    """Set what the variant says of the session."""
    import onnxruntime

    for option in SESSION:
        value = option.given(variant)
        if value is not None:
            enum = ENUMS.get(option.name)
            setattr(options, option.key, getattr(getattr(onnxruntime, enum), value) if enum else value)
    for option in ENTRIES:
        value = option.given(variant)
        if value is not None:
            options.add_session_config_entry(option.key, str(value))


def of_cuda(variant: Variant) -> dict[str, str]:
    """What the variant says of the CUDA provider."""
    given = {option.key: str(value) for option in OF_PROVIDER if (value := option.given(variant)) is not None}
    return given | ({TUNING: given[TUNABLE_OP.key]} if TUNABLE_OP.key in given else {})
