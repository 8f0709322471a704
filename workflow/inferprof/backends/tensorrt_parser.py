"""TensorRT-RTX's ONNX parser asked which nodes of a graph it takes. No GPU is needed.

As ONNX Runtime's TensorRT provider does, a stretch of nodes that the parser is not sure of is taken out and asked
about again by itself.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from inferprof.backends.tensorrt_runtime import message_log
from inferprof.model import onnx_graph

if TYPE_CHECKING:
    import onnx

Why = Literal["operator", "number format", "attributes", "dynamic shape", "not told"]
"""As in the ledger of a session (tables.nodes.fallback)."""
UNTOLD: Final[tuple[Why, str]] = ("not told", "the graph does not tell the types around it")
OF_ALL: Final = -1
"""The index that the parser gives to an error of no node, such as a weight of a type that it lacks."""
NO_OPERATOR: Final = "not among the operators of this parser"
DEPTH: Final = 10
"""How often a stretch is asked about again; the provider's own limit is 1000 questions."""
NO_GPU: Final = re.compile(r"[^\n]*Cuda Runtime \(In catchCudaError[^\n]*")
"""What a parser on a machine without a driver adds to each of its errors."""
_WORDS: Final[tuple[tuple[re.Pattern[str], Why], ...]] = (
    (re.compile(r"(?i)dynamic|number of output channels: -1|SymbolicValue|build.?time"), "dynamic shape"),
    (re.compile(r"(?i)must have type|data ?type|has type|import initializer"), "number format"),
    (re.compile(r"(?i)must be an initializer|is_weights|not a constant"), "attributes"),
    (re.compile(r"(?i)plugin|no importer|creator"), "operator"),
)
_CODES: Final[Mapping[str, Why]] = {
    "UNSUPPORTED_NODE_DATATYPE": "number format",
    "UNSUPPORTED_NODE_DYNAMIC": "dynamic shape",
    "UNSUPPORTED_NODE_SHAPE": "attributes",
    "UNSUPPORTED_NODE_ATTR": "attributes",
    "UNSUPPORTED_NODE_INPUT": "attributes",
}


@dataclass(frozen=True)
class Answer:
    """taken: the indices of the nodes of each subgraph; errors: index → why it falls back and the words."""

    taken: list[list[int]]
    errors: dict[int, tuple[Why, str]]


def ask(trt: Any, path: Path, model: onnx.ModelProto, depth: int) -> Answer:
    """What the parser takes of the model, with what it is not sure of asked about again."""
    log = message_log(trt, aloud=False)
    network = trt.Builder(log).create_network(0)
    parser = trt.OnnxParser(network, log)
    parser.supports_model_v2(model.SerializeToString(), str(path))
    errors = {error.node(): _why(error) for error in map(parser.get_error, range(parser.num_errors))}
    of_all = errors.pop(OF_ALL, None)
    answer = Answer([], errors)
    for number in range(parser.num_subgraphs):
        nodes = sorted(parser.get_subgraph_nodes(number))
        if parser.is_subgraph_supported(number):
            answer.taken.append(nodes)
            continue
        if of_all and len(nodes) == len(model.graph.node):  # it would answer the same again
            answer.errors.update(dict.fromkeys(nodes, of_all))
            continue
        part = _extracted(model, nodes) if depth else None
        if part is None:
            answer.errors.update(dict.fromkeys(nodes, of_all or UNTOLD))
            continue
        inner = ask(trt, path, part, depth - 1)
        answer.taken.extend([nodes[index] for index in subgraph] for subgraph in inner.taken)
        answer.errors.update({nodes[index]: error for index, error in inner.errors.items()})
    return answer


def _extracted(model: onnx.ModelProto, nodes: Sequence[int]) -> onnx.ModelProto | None:
    """A model of these nodes alone: what they need is its inputs, what others need of them its outputs.

    None where the type of one of those is not known.
    """
    own = [model.graph.node[index] for index in nodes]
    others = [node for index, node in enumerate(model.graph.node) if index not in set(nodes)]
    weights = {item.name for item in model.graph.initializer}
    made = [name for node in own for name in node.output if name]
    wanted = {name for node in others for name in onnx_graph.taken_by(node)} | {
        value.name for value in model.graph.output
    }
    needed = dict.fromkeys(
        name for node in own for name in onnx_graph.taken_by(node) if name not in weights and name not in made
    )
    results = [name for name in made if name in wanted]
    values = {value.name: value for value in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
    if any(name not in values for name in (*needed, *results)):
        return None
    part = copy.deepcopy(model)
    for field in ("node", "input", "output", "value_info"):
        part.graph.ClearField(field)
    part.graph.node.extend(own)
    part.graph.input.extend(values[name] for name in needed)
    part.graph.output.extend(values[name] for name in results)
    part.graph.value_info.extend(values[name] for name in made if name in values and name not in results)
    return part


def _why(error: Any) -> tuple[Why, str]:
    words = " ".join(NO_GPU.sub("", error.desc()).split())
    if words == "false":  # a check of the parser that failed without a message
        return "operator", NO_OPERATOR
    code = str(error.code()).rpartition(".")[2]
    if code in _CODES:
        return _CODES[code], words
    for pattern, why in _WORDS:
        if pattern.search(words):
            return why, words
    return ("operator" if code == "UNSUPPORTED_NODE" else "not told"), words
