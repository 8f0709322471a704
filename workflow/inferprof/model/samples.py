"""Samples of a model's inputs in batches: some to calibrate a number format with, others to judge it by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from inferprof.case import BATCH, Shape
from inferprof.errors import UserError
from inferprof.model import data
from inferprof.model.model_spec import ModelSpec

if TYPE_CHECKING:
    from inferprof.plugins import Feeds

BATCH_SIZE = 8
"""Samples a batch. Above 1, since ModelOpt leaves a matrix product with one row (a head at batch 1) unquantized."""


def feeds(spec: ModelSpec, count: int, seed: int) -> list[Feeds]:
    """At least `count` samples to judge by, in whole batches. Raises UserError where the data are unusable."""
    return _draw(spec, count, 2 * seed)


def calibration_feeds(spec: ModelSpec, count: int) -> list[Feeds]:
    """At least `count` samples to calibrate with, in whole batches. Raises UserError where the data are unusable."""
    return _draw(spec, count, calibration_seed(spec))


def calibration_seed(spec: ModelSpec) -> int:
    """The seed of the calibration samples: odd, since `data` shares nothing between odd and even seeds."""
    return 2 * spec.seed + 1


def sample_shape(spec: ModelSpec) -> Shape:
    """The shape that samples are drawn at: BATCH_SIZE where the model allows it, its own sizes for the rest."""
    batch = min(BATCH_SIZE, spec.max_sizes.get(BATCH, BATCH_SIZE)) if BATCH in spec.symbols else 1
    return spec.at(Shape(((BATCH, batch),)))


def _draw(spec: ModelSpec, count: int, seed: int) -> list[Feeds]:
    if count < 1:
        raise UserError(f"model {spec.name}: {count} samples were asked for; allowed: 1 or more")
    shape = sample_shape(spec)
    return [*data.feeds(spec, shape, -(-count // shape.batch), seed)]
