"""ONNX Runtime's optimizer of transformers: nodes of a graph become the fused operators of its own domain."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

from inferprof.backends.ort_options import ALL
from inferprof.case import Variant
from inferprof.errors import CaseFailed
from inferprof.files import written_whole
from inferprof.runtime_option import RuntimeOption

OFF: Final = "off"
KINDS: Final = ("bert", "bart", "clip", "conformer", "gpt2", "swin", "t5", "unet", "vae", "vit")
TRANSFORMER_OPTIMIZER: Final = RuntimeOption(
    name="transformer_optimizer",
    meaning="ONNX Runtime's optimizer of transformers rewrites the graph first, for a model of this kind: "
    f"`{'`, `'.join(KINDS)}`, or `{OFF}` (default)",
    backends=ALL,
    key="model_type",
    values={OFF: OFF, **{kind: kind for kind in KINDS}},
    source="https://onnxruntime.ai/docs/performance/transformers-optimization.html",
    tries=(KINDS[0],),
    operators=frozenset({"Softmax", "Attention"}),
)


def rewritten(onnx: Path, variant: Variant) -> Path:
    """The graph that a variant wants: the file as it is, or what the optimizer made of it, kept beside it.

    Raises CaseFailed where the optimizer is not installed, or fuses nothing.
    """
    kind = TRANSFORMER_OPTIMIZER.given(variant)
    if kind in (None, OFF):
        return onnx
    kept = onnx.with_name(f"{onnx.stem}.{kind}.onnx")
    if not kept.exists() or kept.stat().st_mtime_ns < onnx.stat().st_mtime_ns:
        content = _optimized(onnx, kind)
        with written_whole(kept) as path:
            path.write_bytes(content)
    return kept


def _optimized(onnx: Path, kind: str) -> bytes:
    try:
        from onnxruntime.transformers import optimizer
    except ImportError as error:
        raise CaseFailed(f"transformer_optimizer: onnxruntime.transformers cannot be imported: {error}") from error
    try:
        with contextlib.redirect_stdout(sys.stderr):  # it prints
            model = optimizer.optimize_model(str(onnx), model_type=kind, opt_level=0)
            content = bytes(model.model.SerializeToString())
    except Exception as error:  # whatever it raises about a graph
        raise CaseFailed(f"transformer_optimizer: {kind}: {type(error).__name__}: {error}") from error
    if not any(model.get_fused_operator_statistics().values()):
        raise CaseFailed(f"transformer_optimizer: nothing in this graph is fused as in {kind}")
    return content
