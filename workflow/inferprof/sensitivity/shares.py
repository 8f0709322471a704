"""What part of a typical sample's loss a unit makes, and how well a ranking by that reproduces itself.

A typical sample is the geometric mean over samples, which is the mean SQNR in dB: a few samples that lose twenty
times as much as the others do not make the ranking.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FLOOR = float(np.finfo(np.float32).eps) ** 2
"""The least loss that is told, in the place of 0 where logarithms are taken: outputs are float32."""
SPLITS = 20
"""How often the samples are halved at random to see how well a ranking is reproduced."""


def typical(losses: Array) -> Array:
    """The geometric mean over samples, the last axis: that of the mean SQNR in dB."""
    mean: Array = np.exp(np.log(np.maximum(losses, FLOOR)).mean(axis=-1))
    return mean


def share_alone(alone: Array, joint: Array) -> Array:
    """Of what all lose on a typical sample, what each unit [unit, sample] loses alone; 0 where both are infinite."""
    with np.errstate(invalid="ignore"):
        share: Array = np.nan_to_num(typical(alone) / typical(joint), posinf=0)
    return share


def _saved(rest: Array, joint: Array) -> Array:
    """ln(joint / rest) of each sample; 0 where both are infinite: the loss stays."""
    with np.errstate(invalid="ignore"):
        saved = np.log(np.maximum(joint, FLOOR)) - np.log(np.maximum(rest, FLOOR))
    return np.where(np.isnan(saved), 0.0, saved)


def gone(rest: Array, joint: Array) -> Array:
    """Of each unit, the part of a typical sample's joint loss that goes where a `rest` is left; 0 where none is."""
    with np.errstate(invalid="ignore", over="ignore"):
        share: Array = np.nan_to_num(-np.expm1(-_saved(rest, joint).mean(axis=-1)), neginf=0)
    return share


def error_of(rest: Array, joint: Array) -> Array | None:
    """Standard error of the mean whose part `gone` says, in logarithms; None of one sample, or of no numbers."""
    if joint.shape[-1] < 2 or not np.isfinite(joint).all() or not np.isfinite(rest).all():
        return None
    error: Array = _saved(rest, joint).std(axis=-1, ddof=1) / math.sqrt(joint.shape[-1])
    return error


def agreement(ranking: Callable[[list[int]], Array], samples: int, least: int = 2) -> float | None:
    """How well a ranking agrees with the same one of as many other samples: a ceiling of what agrees with it.

    Spearman's rho of halves, the mean of SPLITS of them, told for all samples by Spearman and Brown's 2 r / (1 + r).
    None where there are no halves, or fewer than `least` different values to rank.
    """
    from scipy.stats import spearmanr

    if samples < 2:
        return None
    random = np.random.default_rng(0)
    rhos = []
    for order in (random.permutation(samples) for _ in range(SPLITS)):
        halves = [ranking(part.tolist()) for part in (order[: samples // 2], order[samples // 2 :])]
        if any(len({*half.tolist()}) < least for half in halves):
            return None
        rhos.append(spearmanr(*halves).statistic)
    rho = float(np.mean(rhos))
    return 2 * rho / (1 + rho) if rho > 0 else rho
