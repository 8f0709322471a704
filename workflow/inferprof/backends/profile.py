"""Optimization profiles, the input shapes that an engine serves, and what every build says in .build.json."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

from inferprof.case import Shape, Variant
from inferprof.errors import UserError
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import BuildRequest
from inferprof.units import KIB

Profile = dict[str, dict[str, tuple[int, ...]]]
"""Input → min, opt and max shape."""


def provider_options(profile: Profile, prefix: str) -> dict[str, str]:
    """The profile as options of a provider of ONNX Runtime: shapes are written as input:1x3,input2:1x4."""
    return {
        f"{prefix}_profile_{bound}_shapes": ",".join(
            f"{name}:{'x'.join(map(str, ranges[bound]))}" for name, ranges in profile.items()
        )
        for bound in ("min", "opt", "max")
    }


def profile_of(spec: ModelSpec, shape: Shape, variant: Variant) -> Profile:
    """Exactly this shape; with the option `profile: [b1, b64]`, everything from the smallest to the largest.

    The shape itself is the optimum. Raises UserError where the option is no list of the model's shapes.
    """
    labels = variant.options.get("profile", [])
    if not isinstance(labels, list):
        raise UserError(f"profile {labels!r} is not a list of shapes; write it as profile: [b1, b64]")
    shapes = [spec.at(given) for given in (shape, *map(Shape.parse, labels))]
    profile: Profile = {}
    for item in spec.inputs:
        sizes = [item.shape(each) for each in shapes]
        axes = list(zip(*sizes, strict=True))
        profile[item.name] = {"min": tuple(map(min, axes)), "opt": sizes[0], "max": tuple(map(max, axes))}
    return profile


def build_facts(
    request: BuildRequest, seconds: float, profile: Profile, versions: Mapping[str, str]
) -> dict[str, Any]:
    """Facts of a build that has just written `request.out`: duration, size, peak of host memory, options, shapes."""
    return {
        "seconds": seconds,
        "bytes": request.out.stat().st_size,
        "host_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KIB,
        "versions": dict(versions),
        "target": ".".join(map(str, request.target)) if request.target else None,
        "options": dict(request.variant.options),
        "profile": profile,
    }
