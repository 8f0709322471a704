"""How well the ranking of `inferprof sensitivity` agrees with trying every unit alone on every sample.

python benchmarks/sensitivity.py models/minilm.yaml int8 results/onnx/minilm/fp32.onnx 32 calibration=max samples=32

An ONNX file that is not there is exported first.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import yaml
from scipy.stats import spearmanr

from inferprof import registry, sensitivity
from inferprof.case import Shape
from inferprof.model import export, model_spec, samples
from inferprof.plugins import ConvertRequest
from inferprof.sensitivity import measure


def main(spec_file: str, name: str, onnx: str, count: str, *given: str) -> None:
    """Print passes and seconds of the ranking and of the full one, and Spearman's rho of the two."""
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
    full = np.array([switched.losses({number}).mean() for number in range(len(prepared.units))])
    print(
        f"{spec.name} {name}: {len(full)} units, {losses.passes} passes of {len(feeds)} samples "
        f"({losses.samples} each alone) in {ranked_s:.0f} s; all {len(full)} in {time.monotonic() - started:.0f} s; "
        f"Spearman {spearmanr(losses.alone, full).statistic:.3f}; joint {measure.db(losses.joint.mean())} dB, "
        f"sum {measure.db(losses.alone.sum())} dB"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
