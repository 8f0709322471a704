"""Sessions of a case at several batch sizes, which serve batches of single requests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from inferprof import loading, outcomes, registry
from inferprof.case import BATCH, HOST_CAST
from inferprof.device import Device
from inferprof.errors import UserError
from inferprof.machine.hardware import Gpu
from inferprof.measure.lane import Lane
from inferprof.model.model_spec import ModelSpec
from inferprof.plugins import Backend, Feeds
from inferprof.run_request import RunRequest

WARM_UP: Final = 3
"""Inferences of each size before anything is timed."""
FEWEST: Final = 6
"""Samples of each size that a curve has at the least."""
BLOCK: Final = 4
"""Inferences of a size in a row, of which the first does not count."""
Array = np.ndarray[Any, Any]
Sampled = dict[int, list[float]]
"""Batch size → service times, ns."""


class Server:
    """Lanes by batch size. A batch runs on the smallest lane that holds it; rows that it lacks keep what they had."""

    def __init__(self, lanes: Mapping[int, tuple[Lane, Feeds]], spec: ModelSpec) -> None:
        self._lanes = {size: lane for size, (lane, _) in sorted(lanes.items())}
        axes = {item.name: item.dims.index(BATCH) for item in spec.inputs if BATCH in item.dims}
        largest = lanes[max(lanes)][1]
        # The rows of a request are arrays of its own, as a caller would have them.
        self._requests = [
            {name: np.moveaxis(largest[name], axis, 0)[row].copy() for name, axis in axes.items()}
            for row in range(max(lanes))
        ]
        self._rows = {
            size: {name: np.moveaxis(feeds[name], axis, 0) for name, axis in axes.items()}
            for size, (_, feeds) in lanes.items()
        }

    @property
    def sizes(self) -> list[int]:
        """The batch sizes that have a session."""
        return list(self._lanes)

    def serve(self, requests: Sequence[int]) -> dict[str, Array]:
        """Form a batch of requests, by their numbers, and run it from host arrays to host arrays."""
        size = self._size(len(requests))
        rows = self._rows[size]
        for place, number in enumerate(requests):
            for name, array in self._requests[number % len(self._requests)].items():
                rows[name][place] = array
        lane = self._lanes[size]
        lane.begin()
        return lane.finish()

    def curve(self, seconds: float) -> Sampled:
        """Service times of each size, ns, of batches that follow each other, for so many seconds a size."""
        samples: Sampled = {size: [] for size in self._lanes}
        end = time.perf_counter() + seconds * len(samples)
        while time.perf_counter() < end or len(samples[max(samples)]) < FEWEST:
            for size, taken in samples.items():
                taken.extend(self._timed(size) for _ in range(BLOCK))
                del taken[-BLOCK]  # behind another size
        return samples

    def _timed(self, requests: int) -> float:
        start = time.perf_counter_ns()
        self.serve(range(requests))
        return float(time.perf_counter_ns() - start)

    def _size(self, requests: int) -> int:
        return next(size for size in self._lanes if size >= requests)


@contextlib.contextmanager
def opened(requests: Sequence[RunRequest], gpu: Gpu | None) -> Iterator[Server]:
    """A server with a session for each request of a run, which differ in the batch alone."""
    first = requests[0]
    if HOST_CAST in first.variant.options:
        raise UserError(f"serving forms batches in the model's own types: leave {HOST_CAST} out of the variant")
    if first.world:
        raise UserError("serving has one worker on one GPU: leave out of the variant what divides it over ranks")
    backend: Backend = registry.look_up("backend", first.case.backend, registry.backends())
    device = loading.device_of([gpu] if gpu else [])
    with contextlib.ExitStack() as stack:
        lanes = {}
        for request in requests:
            outcomes.require_made(request.artifact)
            session = stack.enter_context(outcomes.opened(backend.open(loading.open_request(request, device))))
            feeds = {name: np.array(array) for name, array in loading.feeds_of(request).items()}
            lane = Lane(session, device, feeds, request.placement)
            _warm_up(lane, device, graph=request.variant.flag("cuda_graph"))
            lanes[request.shape.batch] = lane, feeds
        yield Server(lanes, first.spec)


def _warm_up(lane: Lane, device: Device, *, graph: bool) -> None:
    with outcomes.stage("first inference"):
        for _ in range(WARM_UP):
            lane.begin()
            lane.finish()
        if graph:
            lane.session.capture_graph()
            device.synchronize()
