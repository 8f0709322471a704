"""Real inputs for calibration and accuracy: a number of samples in batches, checked before anything costly starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from inferprof.case import BATCH, Shape
from inferprof.errors import UserError
from inferprof.model_spec import ModelSpec

if TYPE_CHECKING:
    from inferprof.plugins import Feeds

BATCH_SIZE = 8
"""Samples a batch. Above 1, since ModelOpt leaves a matrix product with one row (a head at batch 1) unquantized."""


def sample_shape(spec: ModelSpec) -> Shape:
    """The shape that samples are drawn at: BATCH_SIZE where the model allows it, its own sizes for the rest."""
    batch = min(BATCH_SIZE, spec.max_sizes.get(BATCH, BATCH_SIZE)) if BATCH in spec.symbols else 1
    shape = spec.resolve(Shape(((BATCH, batch),)))
    assert shape is not None, "a shape of the batch alone names no unknown symbol"
    return shape


def feeds(spec: ModelSpec, count: int, seed: int) -> list[Feeds]:
    """At least `count` samples, in whole batches of `sample_shape`. Raises UserError where the data are unusable."""
    from inferprof import data

    if count < 1:
        raise UserError(f"model {spec.name}: {count} samples were asked for; allowed: 1 or more")
    shape = sample_shape(spec)
    batches: list[Feeds] = data.feeds(spec, shape, -(-count // shape.batch), seed)
    check(batches, spec, shape)
    return batches


def check(batches: Sequence[Feeds], spec: ModelSpec, shape: Shape) -> None:
    """Raise UserError, in one line, where the inputs are empty, of another shape or dtype, or not finite."""
    if not batches:
        raise UserError(f"model {spec.name}: the input data hold no samples; give at least one")
    for batch in batches:
        _check_batch(batch, spec, shape)


def _check_batch(batch: Mapping[str, np.ndarray[Any, Any]], spec: ModelSpec, shape: Shape) -> None:
    for item in spec.inputs:
        if item.name not in batch:
            raise UserError(f"model {spec.name}: no data for input {item.name}; given: {', '.join(batch) or 'none'}")
        array = batch[item.name]
        where = f"model {spec.name}: data of input {item.name} ({item.data})"
        if array.dtype != np.dtype(item.dtype):
            raise UserError(f"{where}: dtype {array.dtype}, but the model takes {item.dtype}; convert the data")
        if array.shape != item.shape(shape):
            raise UserError(f"{where}: shape {array.shape}, but the model takes {item.shape(shape)} at {shape}")
        if not np.isfinite(array).all():
            bad = int(np.size(array) - np.count_nonzero(np.isfinite(array)))
            raise UserError(f"{where}: {bad} of {array.size} values are NaN or infinite; clean the data")
