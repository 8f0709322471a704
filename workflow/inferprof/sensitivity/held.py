"""Leaving a unit out while the rounding errors of all others stay what they were.

Whatever changes in front of a quantizer draws its rounding errors anew: those of all units behind the one that is
left out. The joint loss differs by that more than by what most units lose. So the errors are recorded once, with all
units in the format, and are then added in the place of the quantizers: what is left out takes its own errors away and
no others. Of weights, whose errors never change, both forms are stored.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from inferprof.sensitivity import switches
from inferprof.sensitivity.switches import Unit


def holds(units: Sequence[Unit]) -> bool:
    """Whether what a unit adds is its own. A result that is rounded is rounded again, to the same, by its readers."""
    return all(edge.place >= 0 for unit in units for edge in unit.edges)


def recording(model: Any, units: Sequence[Unit]) -> Any:
    """A float graph with all units in the format, and further outputs: what that adds to each activation."""
    import onnx

    result = copy.deepcopy(model)
    graph = result.graph
    stored = switches.stored(model, units)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in stored.items())
    edges = {(edge.node, edge.place): edge for unit in units for edge in unit.edges}
    made = {name: name for name in stored}
    nodes = []
    for node in graph.node:
        for place in range(len(node.input)):
            edge = edges.get((node.output[0] if node.output else "", place))
            if edge is None:
                continue
            key = switches.stored_as(edge)
            if key not in made:
                chain = list(switches.chained(edge.chain, edge.tensor, f"{key}/put"))
                made[key] = chain[-1].output[0]
                nodes += [*chain, onnx.helper.make_node("Sub", [made[key], edge.tensor], [switches.error(edge)])]
                graph.output.append(
                    onnx.helper.make_tensor_value_info(switches.error(edge), onnx.TensorProto.FLOAT, None)
                )
            node.input[place] = made[key]
        nodes.append(node)
    del graph.node[:], graph.value_info[:]
    graph.node.extend(nodes)
    switches.drop_unread(graph)
    return result
