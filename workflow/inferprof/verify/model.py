"""verify's model: two layers, exported from torch where it is installed, else an ONNX file made of a few nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from inferprof.files import write_text, written_whole

YAML = """\
# verify's model: a vision transformer of two layers with seeded random weights.
source: transformers
architecture: ViTForImageClassification
config:
  hidden_size: 384
  num_hidden_layers: 2
  num_attention_heads: 6
  intermediate_size: 1536
  image_size: 224
  patch_size: 16
  num_labels: 100
pretrained: false
seed: 0
task: classification
output: logits
inputs:
  - {name: pixel_values, dtype: float32, dims: [b, 3, 224, 224], data: image}
"""
WIDTH = 256
OPSET, IR_VERSION = 13, 8
"""What the oldest runtimes that verify is run with can read: ONNX Runtime 1.14, TensorRT 8.5."""


def describe(path: Path) -> None:
    """Write the YAML of the model to export."""
    write_text(path, YAML)


def write_onnx(path: Path) -> None:
    """x [b, WIDTH] → twice MatMul, Add, Relu and a residual → y [b, WIDTH], with seeded weights."""
    import onnx
    from onnx import helper

    rng = np.random.default_rng(0)
    nodes, weights, x = [], {}, "x"
    for layer in range(2):
        at = f"layer{layer}"
        weights[f"{at}.weight"] = rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype(np.float32)
        weights[f"{at}.bias"] = rng.normal(0, 0.1, WIDTH).astype(np.float32)
        y = "y" if layer else f"{at}.y"
        for op_type, inputs, output in (
            ("MatMul", [x, f"{at}.weight"], f"{at}.product"),
            ("Add", [f"{at}.product", f"{at}.bias"], f"{at}.sum"),
            ("Relu", [f"{at}.sum"], f"{at}.relu"),
            ("Add", [x, f"{at}.relu"], y),
        ):
            nodes.append(helper.make_node(op_type, inputs, [output], name=f"/{at}/{output}"))
        x = y
    float32 = onnx.TensorProto.FLOAT
    ends = ([helper.make_tensor_value_info(name, float32, ["b", WIDTH])] for name in ("x", "y"))
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, path.stem, *ends, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    with written_whole(path) as partial:
        onnx.save(model, str(partial))
