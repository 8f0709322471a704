"""The outputs that every run of a graph must agree with: computed once, read by each run."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from inferprof.errors import UserError
from inferprof.files import written_whole
from inferprof.model import accuracy
from inferprof.plugins import Feeds

SUFFIX = ".npz"
Compute = Callable[[Feeds], tuple[dict[str, np.ndarray[Any, Any]], str]]
"""Outputs for the inputs of one inference, and what computed them; raises accuracy.NotMeasured."""
FACTS = "inferprof.facts"
"""The member of the file that is no output: JSON with `inputs` and `source`, or with `not_measured`."""


def write(compute: Compute, feeds: Feeds, out: Path) -> None:
    """The outputs for the inputs of one inference, as .npz; the reason where nothing here can compute them."""
    try:
        outputs, source = compute(feeds)
    except accuracy.NotMeasured as error:
        write_reason(str(error), out)
    else:
        _write({"inputs": _digests(feeds), "source": source}, outputs, out)


def write_reason(reason: str, out: Path) -> None:
    """The same file where there are no outputs."""
    _write({"not_measured": reason}, {}, out)


def _write(facts: Mapping[str, Any], outputs: Mapping[str, np.ndarray[Any, Any]], out: Path) -> None:
    # NumPy before 2.2 takes every keyword for an array, allow_pickle too.
    arrays: dict[str, Any] = {**outputs, FACTS: np.array(json.dumps(facts))}
    with written_whole(out) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def of(reference: Path, feeds: Feeds) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """The outputs for `feeds` and what computed them, read from what `write` wrote, or computed from an ONNX file.

    Raises accuracy.NotMeasured where nothing could compute them, UserError for a file of other inputs.
    """
    return _read(reference, feeds) if reference.suffix == SUFFIX else of_graph(reference, feeds)


def write_samples(onnx: Path, batches: Sequence[Feeds], out: Path) -> None:
    """`write` of a graph's outputs over batches of samples."""

    def compute(feeds: Feeds) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
        del feeds  # the batches, joined: the graph runs them one by one
        outputs, source = accuracy.run_graph(onnx, batches)
        return accuracy.joined(outputs), source

    write(compute, accuracy.joined(batches), out)


def of_samples(reference: Path, batches: Sequence[Feeds]) -> Mapping[str, np.ndarray[Any, Any]]:
    """The outputs over batches of samples, read from what `write_samples` wrote, or computed from an ONNX file.

    Raises as `of`.
    """
    if reference.suffix == SUFFIX:
        return _read(reference, accuracy.joined(batches))[0]
    return accuracy.of_samples(reference, batches)


def of_graph(onnx: Path, feeds: Feeds) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    """The outputs as ONNX Runtime computes them on the CPU, as in the accuracy run. Raises accuracy.NotMeasured."""
    (outputs,), source = accuracy.run_graph(onnx, [feeds])
    return outputs, source


def _read(path: Path, feeds: Feeds) -> tuple[dict[str, np.ndarray[Any, Any]], str]:
    try:
        with np.load(path) as content:
            outputs = {name: content[name] for name in content.files}
        facts = json.loads(str(outputs.pop(FACTS)))
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not written by `inferprof expect`: {error}") from None
    if reason := facts.get("not_measured"):
        raise accuracy.NotMeasured(reason)
    if facts["inputs"] != _digests(feeds):
        raise UserError(
            f"{path}: outputs for other inputs; run `inferprof expect` with the same shape, samples and seed"
        )
    return outputs, facts["source"]


def _digests(feeds: Feeds) -> dict[str, str]:
    """Input → the SHA-256 of its type, shape and values."""
    return {
        name: hashlib.sha256(
            f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
        ).hexdigest()
        for name, array in feeds.items()
    }
