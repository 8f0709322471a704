"""What a run is asked to do: one case in one round, measured or watched by a profiler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inferprof.case import HOST_CAST, REFERENCE, Case, Shape, Variant
from inferprof.devices.ranges import nvtx_range
from inferprof.errors import UserError
from inferprof.measure import timing
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import PLACEMENTS, Placement
from inferprof.ranks.supervise import Rank
from inferprof.ranks.world import World


@dataclass(frozen=True)
class Profiling:
    """How a run is watched. Such a run takes no samples: no latency of the report comes from a profiled run."""

    iterations: int = 10
    native: Path | None = None
    """Where the runtime writes its own profile."""
    recorder: Callable[[int], AbstractContextManager[Any]] = contextlib.nullcontext
    """What records in the process of a rank (Kineto), 0 where there is one process; around the iterations."""
    range: Callable[[str], AbstractContextManager[Any]] = nvtx_range
    """Opens a named range: `load`, `warmup`, `iteration`, `stage:<name>`."""
    within: bool = False
    """Whether the recorder looks at single operators, of which there are none inside of a graph launch."""


@dataclass(frozen=True)
class RunRequest:
    """One case in one round. `artifact` is what its backend loads; `streams` is the depth of the pipeline."""

    case: Case
    artifact: Path
    spec: ModelSpec
    variant: Variant
    machine: str
    round: int = 0
    protocol: timing.Protocol = field(default_factory=timing.Protocol)
    seed: int = 0
    streams: int = 2
    reference: Path | None = None
    """What the outputs must agree with: those of the case's own graph (`expected.write`), or the graph itself."""
    tuned: Path | None = None
    """The record whose tuned configurations are taken over."""
    profiling: Profiling | None = None
    hosts: int = 1
    """Over how many nodes of a Slurm job the ranks of a divided case are spread."""
    rank: Rank | None = None
    """Which of several processes this is; None: the only one, or the one that starts them."""

    @property
    def world(self) -> World | None:
        """How the case is divided over ranks; None where it is not."""
        return World.of(self.variant)

    @property
    def shape(self) -> Shape:
        """The shape with all of the model's symbols. Raises UserError where the model cannot have it."""
        shape = self.spec.at(Shape.parse(self.case.shape))
        if reason := self.spec.exceeds(shape):
            raise UserError(f"model {self.spec.name}: {reason}")
        return shape

    @property
    def rounds_like(self) -> str:
        """Whose tolerance the outputs are held to: TF32 and inputs out of float16 have fp16's 11 bits, and an
        approximated Gelu is as near."""
        coarse = any(self.variant.flag(name) for name in ("tf32", "gelu_approximation"))
        of_fp16 = coarse or HOST_CAST in self.variant.options
        return "fp16" if self.case.precision == REFERENCE and of_fp16 else self.case.precision

    @property
    def placement(self) -> Placement:
        """Where the inputs lie before end_to_end's clock starts."""
        given = self.variant.text("placement", "pageable")
        for placement in PLACEMENTS:
            if given == placement:
                return placement
        raise UserError(f"placement {given!r} is unknown; known: {', '.join(PLACEMENTS)}")
