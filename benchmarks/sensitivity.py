"""How well the rankings of `inferprof sensitivity` agree with trying every unit, alone and left out, on every sample.

python benchmarks/sensitivity.py models/minilm.yaml int8 results/onnx/minilm/fp32.onnx 32 calibration=max samples=32

An ONNX file that is not there is exported first.
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
from inferprof.model import export, model_spec, samples
from inferprof.plugins import ConvertRequest
from inferprof.sensitivity import measure

Array = np.ndarray[Any, Any]


def main(spec_file: str, name: str, onnx: str, count: str, *given: str) -> None:
    """Print passes and seconds of the ranking and of the full one, and Spearman's rho of the two, both ways."""
    options = {key: yaml.safe_load(value) for key, _, value in (item.partition("=") for item in given)}
    spec = model_spec.load(Path(spec_file))
    if shape := options.pop("shape", None):
        spec = spec.__class__(**{**vars(spec), "sizes": Shape.parse(shape).as_dict()})
    if not Path(onnx).exists():
        export.export(spec, Path(onnx))
    precision = registry.precisions()[name]
    prepared = sensitivity.prepare(ConvertRequest(Path(onnx), spec, options, Path("unused")), precision)
    feeds = sensitivity.single_samples(spec, int(count), samples.calibration_seed(spec))
    switched = measure.Switched(prepared.model, prepared.units, feeds)
    started = time.monotonic()
    losses = measure.rank(switched)
    ranked_s, started = time.monotonic() - started, time.monotonic()
    everything = frozenset(range(len(prepared.units)))
    alone = np.array([switched.losses({number}) for number in sorted(everything)])
    alone_s = time.monotonic() - started
    every = [switched.left_out(index, sorted(everything))[1] for index in range(len(feeds))]
    rest, joint = np.array(every).T, losses.joint
    usual = np.broadcast_to(joint, rest.shape)
    went, noise = measure.gone(rest, usual), measure.interval(rest, usual)
    told = np.ones(len(rest), bool) if noise is None else abs(went) > noise
    print(
        f"{spec.name} {name}: {len(alone)} units, {losses.passes} passes of {len(feeds)} samples "
        f"({losses.samples} each alone) in {ranked_s:.0f} s; all {len(alone)} in {alone_s:.0f} s; "
        f"joint {measure.db(joint.mean())} dB, sum {measure.db(losses.alone.sum())} dB; Spearman "
        f"alone {_agreed(losses.alone, lambda part: alone[:, part].mean(axis=1), len(feeds))}, "
        f"left out {_agreed(losses.left_out, lambda part: measure.gone(rest[:, part], joint[part]), len(feeds))}, "
        f"of the {told.sum()} units that are no tie {spearmanr(losses.left_out[told], went[told]).statistic:.3f}"
    )


def _agreed(ranked: Array, full: Callable[[list[int]], Array], samples: int) -> str:
    """How a ranking agrees with the full one, and the full one with that of as many other samples."""
    every = full([*range(samples)])
    again = measure.agreement(full, samples)
    ceiling = "not told" if again is None else f"{max(again, 0.0) ** 0.5:.3f}"
    return f"{spearmanr(ranked, every).statistic:.3f} (of others at most {ceiling}, the full one again {again})"


if __name__ == "__main__":
    main(*sys.argv[1:])
