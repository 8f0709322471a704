"""The detector's graph with conversions at its ends, so that they run where the network runs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def half_input(model: onnx.ModelProto) -> onnx.ModelProto:
    """Takes float16 and casts it: half of the bytes over the link."""
    (given,) = model.graph.input
    inner = f"{given.name}_float"
    for node in model.graph.node:
        node.input[:] = [inner if name == given.name else name for name in node.input]
    given.type.tensor_type.elem_type = TensorProto.FLOAT16
    cast = helper.make_node("Cast", [given.name], [inner], name="half_input/Cast", to=TensorProto.FLOAT)
    model.graph.node.insert(0, cast)
    return model


def byte_map(model: onnx.ModelProto) -> onnx.ModelProto:
    """Gives round(255 p) as uint8: a quarter of the bytes back, and still the scores of the boxes, to 1/255."""
    (result,) = model.graph.output
    inner = f"{result.name}_float"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [inner if name == result.name else name for name in names]
    result.type.tensor_type.elem_type = TensorProto.UINT8
    model.graph.initializer.append(numpy_helper.from_array(np.float32(255), "byte_map/levels"))
    model.graph.node.extend(
        [
            helper.make_node("Mul", [inner, "byte_map/levels"], ["byte_map/scaled"], name="byte_map/Mul"),
            helper.make_node("Round", ["byte_map/scaled"], ["byte_map/rounded"], name="byte_map/Round"),
            helper.make_node("Cast", ["byte_map/rounded"], [result.name], name="byte_map/Cast", to=TensorProto.UINT8),
        ]
    )
    return model
