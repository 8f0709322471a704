"""What every build says of itself in .build.json."""

from __future__ import annotations

import resource
from collections.abc import Mapping
from typing import Any

from inferprof.backends.profile import Profile
from inferprof.plugins import BuildRequest
from inferprof.units import KIB


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
