"""An engine of TensorRT-RTX is explained by what its builder listed, in the .build.json beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inferprof.backends.tensorrt_build import _described
from inferprof.errors import UserError
from inferprof.files import write_json
from inferprof.readers import capture_file, trt_listing
from inferprof.readers.kind import Capture

ENGINE = b"vtrt\0\0\0\0\2\0\0\0"


@pytest.fixture
def built(repository: Path, tmp_path: Path) -> Path:
    """An engine, and what `inferprof build` writes beside it."""
    listing = (repository / "tests/data/trt_layers/rtx_convnet_int8.listing.txt").read_text(encoding="utf-8")
    layers = [_described(layer) for layer in trt_listing.layers_of(listing)]
    write_build(tmp_path, layers=layers)
    (tmp_path / "b4.engine").write_bytes(ENGINE)
    return tmp_path / "b4.engine"


def write_build(folder: Path, **facts: Any) -> None:
    versions = {"tensorrt_rtx": "1.7.1.116", "polygraphy": "0.53.6"}
    build = {"status": "ok", "reason": None, "seconds": 1.0, "bytes": 12, "versions": versions, "target": "12.0"}
    write_json(folder / "b4.build.json", {**build, **facts})


def explained(path: Path) -> Capture:
    read = capture_file.identify(path).read
    assert read is not None
    return read(path)


def test_an_engine_and_its_build_say_the_same(built: Path) -> None:
    of_engine, of_build = explained(built), explained(built.with_suffix(".build.json"))
    assert (of_engine.ran, of_engine.notes) == (of_build.ran, of_build.notes)
    said = "\n".join(of_engine.notes)
    assert "TensorRT-RTX engine of 21 kernels" in of_engine.ran
    assert "8: 5 int8, 3 fp32" in said and "convolution 3" in said and "quantize 6" in said
    assert "__myl_CastMulMulAddAddMulMinMaxRounCastReshMoveTranCastMulMeanSubMulMean" in said


def test_an_engine_alone_and_a_build_without_a_list_say_what_to_give(built: Path) -> None:
    write_build(built.parent, layers=[])
    with pytest.raises(UserError, match="no list of layers"):
        explained(built)
    built.with_suffix(".build.json").unlink()
    with pytest.raises(UserError, match=r"give the \.build\.json"):
        explained(built)


@pytest.mark.parametrize("stage", ["build", "convert"])
def test_a_build_that_failed_says_why_at_whichever_stage(tmp_path: Path, stage: str) -> None:
    """The document of such a build has no more than that."""
    path = tmp_path / "b4.build.json"
    write_json(path, {"status": "failed", "stage": stage, "reason": "planted"})
    assert explained(path).failure == "planted"
