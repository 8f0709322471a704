"""What a run loads: the GPUs, the model in a session, and what it is fed with; what ranks other than 0 do with it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from inferprof import documents, outcomes
from inferprof.device import Device
from inferprof.devices.cpu import CpuDevice
from inferprof.devices.cuda import CudaDevice
from inferprof.documents import Watched
from inferprof.documents.record import Tuning
from inferprof.errors import CaseFailed
from inferprof.machine import hardware
from inferprof.machine.hardware import Gpu
from inferprof.measure import host_cast
from inferprof.measure.lane import Lane
from inferprof.model import data
from inferprof.plugins import Backend, Feeds, OpenRequest, Session
from inferprof.ranks import led
from inferprof.ranks.supervise import Rank
from inferprof.run_request import RunRequest


def gpus_of(backend: Backend, count: int) -> list[Gpu]:
    """Up to so many GPUs, as CUDA counts them; none for a backend of the CPU."""
    every = (hardware.detect_gpu(index) for index in range(count if backend.where != "cpu" else 0))
    return [gpu for gpu in every if gpu]


def opened(request: RunRequest, backend: Backend, device: Device) -> AbstractContextManager[Session]:
    """The session that is measured: of several ranks, that of the one that leads the others."""
    session = backend.open(open_request(request, device))
    return outcomes.opened(led.leading(session, request.rank) if request.rank else session)


def open_request(request: RunRequest, device: Device) -> OpenRequest:
    """What the backend is asked to load."""
    return OpenRequest(
        artifact=request.artifact,
        spec=request.spec,
        precision=request.case.precision,
        shape=request.shape,
        variant=request.variant,
        device=device,
        threads=request.variant.whole("threads")
        if "threads" in request.variant.options
        else max(1, len(os.sched_getaffinity(0)) // (request.world.size if request.world else 1)),
        native_profile=request.profiling.native if request.profiling else None,
        rank=request.rank,
        remembered=_remembered(request.tuned),
    )


def _remembered(record: Path | None) -> list[Tuning]:
    """What another case's autotuners chose. Raises CaseFailed where its record does not say."""
    if record is None:
        return []
    content: Watched = documents.read(record, "watched")
    if not content.tuning:
        raise CaseFailed(f"{record} has no tuned configurations: {content.reason or 'nothing was tuned'}")
    return content.tuning


def feeds_of(request: RunRequest) -> Feeds:
    """The host arrays of one inference: the same ones in every round."""
    return data.feeds(request.spec, request.shape, 1, request.seed)[0]


def device_of(gpus: Sequence[Gpu], rank: Rank | None = None) -> Device:
    """The GPU of this rank, or the CPU where there is none."""
    if gpus and rank:
        import torch

        # Before the driver API does: in a forked process whose context the driver API made, NCCL 2.28.9 ends by
        # SIGSEGV at its first communicator (ncclCommInitRankConfig, in cuLibraryLoadData).
        torch.cuda.set_device(rank.gpu)
    return CudaDevice(rank.gpu if rank else 0) if gpus else CpuDevice()


def digest(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """What the record keeps of an output: enough to see whether two runs gave the same."""
    content = np.ascontiguousarray(array)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": hashlib.sha256(content.tobytes()).hexdigest(),
        "finite": bool(np.isfinite(array).all()) if array.dtype.kind == "f" else True,
    }


def follow(request: RunRequest, backend: Backend, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """A rank other than 0: its inferences are those of rank 0."""
    rank = request.rank
    assert rank is not None
    device = device_of(gpus, rank)
    feeds = host_cast.given_as_half(feeds_of(request), request.variant)
    with outcomes.opened(backend.open(open_request(request, device))) as session:
        lane = Lane(session, device, feeds, request.placement)
        with outcomes.stage("follow"):
            led.follow(session, device, lane, rank, request.profiling)
            lane.d2h()
            outputs = lane.finish()
        digests = {name: digest(array) for name, array in outputs.items()}
        return {"memory": session.memory(), "outputs": digests}
