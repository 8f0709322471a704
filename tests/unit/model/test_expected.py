from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.unit.facts import naming

from inferprof.errors import UserError
from inferprof.model import accuracy, expected

FEEDS = {"x": np.arange(6, dtype=np.float32).reshape(2, 3)}


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """y/sum = x + x."""
    onnx = pytest.importorskip("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    x, y = (helper.make_tensor_value_info(name, kind, ["b", 3]) for name in ("x", "y/sum"))
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y/sum"])], "twice", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "twice.onnx")
    return tmp_path / "twice.onnx"


def test_what_is_read_is_what_the_graph_gives(twice, tmp_path):
    expected.write(partial(expected.of_graph, twice), FEEDS, tmp_path / "expected.npz")
    outputs, source = expected.of(tmp_path / "expected.npz", FEEDS)
    computed, of_graph = expected.of(twice, FEEDS)
    assert source == of_graph == accuracy.IN_ORT
    assert list(outputs) == ["y/sum"]
    np.testing.assert_array_equal(outputs["y/sum"], 2 * FEEDS["x"])
    np.testing.assert_array_equal(outputs["y/sum"], computed["y/sum"])


def test_older_numpy_writes_no_more_than_the_outputs(twice, tmp_path, monkeypatch):
    """Before 2.2 NumPy's savez took every keyword for an array."""
    saved = np.savez
    monkeypatch.setattr(
        np, "savez", lambda file, **arrays: saved(file, **{f"_{name}": arrays[name] for name in arrays})
    )
    expected.write(partial(expected.of_graph, twice), FEEDS, tmp_path / "expected.npz")
    assert set(np.load(tmp_path / "expected.npz")) == {"_y/sum", f"_{expected.FACTS}"}


@pytest.mark.parametrize("change", [lambda x: x + 1, lambda x: x.reshape(3, 2), lambda x: x.astype(np.float16)])
def test_outputs_for_other_inputs_are_refused(change, twice, tmp_path):
    expected.write(partial(expected.of_graph, twice), FEEDS, tmp_path / "expected.npz")
    with pytest.raises(UserError, match=naming("other inputs", "inferprof expect", "shape")):
        expected.of(tmp_path / "expected.npz", {"x": change(FEEDS["x"])})


def test_a_graph_that_cannot_be_computed_here_leaves_the_reason(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"")
    expected.write(partial(expected.of_graph, tmp_path / "broken.onnx"), FEEDS, tmp_path / "expected.npz")
    with pytest.raises(accuracy.NotMeasured, match=r"^broken.onnx: "):
        expected.of(tmp_path / "expected.npz", FEEDS)


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_another_file_is_refused_in_one_line(content, tmp_path):
    (tmp_path / "other.npz").write_bytes(content)
    with pytest.raises(UserError, match=naming("not", "inferprof expect")):
        expected.of(tmp_path / "other.npz", FEEDS)
