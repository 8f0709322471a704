"""How well the rankings of `inferprof sensitivity` agree with trying every unit, alone and left out, on every sample.

python benchmarks/sensitivity.py models/minilm.yaml int8 results/onnx/minilm/fp32.onnx - calibration=max full=96

Behind the ONNX file, exported first where it is not there, stands the count of samples; `-`: as many as the ranking
chooses. `full`: the first so many of them for the full rankings (else all), `shape`: sizes such as h128_w128.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scipy.stats import spearmanr

from inferprof import registry, sensitivity
from inferprof.case import Shape
from inferprof.model import export, model_spec
from inferprof.plugins import ConvertRequest
from inferprof.sensitivity import measure, shares

Array = np.ndarray[Any, Any]


def main(spec_file: str, name: str, onnx: str, count: str, *given: str) -> None:
    """Print passes and seconds of the ranking and of the full one, and Spearman's rho of the two, both ways."""
    options = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in given)}
    spec = model_spec.load(Path(spec_file))
    if shape := options.pop("shape", None):
        spec = spec.__class__(**{**vars(spec), "sizes": Shape.parse(shape).as_dict()})
    full = options.pop("full", None)
    if not Path(onnx).exists():
        export.export(spec, Path(onnx))
    precision = registry.precisions()[name]
    prepared = sensitivity.prepare(ConvertRequest(Path(onnx), spec, options, Path("unused")), precision)
    feeds, more = sensitivity.to_rank(spec, len(prepared.units), None if count == "-" else int(count))
    started = time.monotonic()
    switched = measure.Switched(prepared.model, prepared.units, feeds)
    losses = measure.rank(switched, more)
    ranked_s, started = time.monotonic() - started, time.monotonic()
    everything, first = (
        [*range(len(prepared.units))],
        range(min(full or len(switched.samples), len(switched.samples))),
    )
    alone = np.array([[switched.loss(index, {number}) for index in first] for number in everything])
    alone_s = time.monotonic() - started
    every = [switched.left_out(index, everything) for index in first]
    joint, rest = np.array([all_units for all_units, _ in every]), np.array([each for _, each in every]).T
    usual = np.broadcast_to(joint, rest.shape)
    whole = measure.Losses(
        alone.mean(axis=1),
        shares.share_alone(alone, joint),
        shares.gone(rest, usual),
        joint,
        len(first),
        0,
        left_out_error=shares.error_of(rest, usual),
        left_out_samples=len(first),
    )
    no_tie = whole.told if whole.told.any() else ~whole.told
    without = losses.left_out
    print(
        f"{spec.name} {name}: {len(alone)} units, {losses.passes} passes of {len(switched.samples)} samples "
        f"({losses.samples} each alone, {losses.left_out_samples} left out) in {ranked_s:.0f} s, by itself "
        f"{losses.reproducible}; all {len(alone)} on {len(first)} in {alone_s:.0f} s; "
        f"joint {measure.db(losses.joint.mean())} dB, sum {measure.db(losses.alone.sum())} dB; Spearman "
        f"alone {_agreed(losses.alone, lambda part: alone[:, part].mean(axis=1), len(first))}, "
        f"left out {_agreed(without, lambda part: shares.gone(rest[:, part], joint[part]), len(first))}, "
        f"of the {no_tie.sum()} units that are no tie "
        f"{_agreed(without[no_tie], lambda part: shares.gone(rest[no_tie][:, part], joint[part]), len(first))}"
    )


def _agreed(ranked: Array, full: Callable[[list[int]], Array], samples: int) -> str:
    """How a ranking agrees with the full one, and the full one with that of as many other samples."""
    every = full([*range(samples)])
    again = shares.agreement(full, samples)
    ceiling = "not told" if again is None else f"{max(again, 0.0) ** 0.5:.3f}"
    return f"{spearmanr(ranked, every).statistic:.3f} (of others at most {ceiling}, the full one again {again})"


if __name__ == "__main__":
    main(*sys.argv[1:])
