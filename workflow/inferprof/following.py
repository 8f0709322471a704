"""What a rank other than 0 does of a case that is divided over several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inferprof import loading, outcomes
from inferprof.machine.hardware import Gpu
from inferprof.measure import host_cast
from inferprof.measure.lane import Lane
from inferprof.plugins import Backend
from inferprof.ranks import led
from inferprof.run_request import RunRequest


def follow(request: RunRequest, backend: Backend, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """A rank other than 0: its inferences are those of rank 0."""
    rank = request.rank
    assert rank is not None
    device = loading.device_of(gpus, rank)
    feeds = host_cast.given_as_half(loading.feeds_of(request), request.variant)
    with outcomes.opened(backend.open(loading.open_request(request, device))) as session:
        lane = Lane(session, device, feeds, request.placement)
        with outcomes.stage("follow"):
            led.follow(session, device, lane, rank, request.profiling)
            lane.d2h()
            outputs = lane.finish()
        digests = {name: loading.digest(array) for name, array in outputs.items()}
        return {"memory": session.memory(), "outputs": digests}
