"""The way of one session's arrays: host arrays → device → inference → host arrays, in named stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from inferprof.case import Stage
from inferprof.device import Buffer, Device
from inferprof.errors import CaseFailed
from inferprof.plugins import Feeds, Placement, Session

POISON = 0xFF
"""A byte whose repetition is NaN in every float format and -1 in every signed integer."""


class Lane:
    """A session, its device, and the memory that its inputs and outputs pass through.

    All memory is allocated once, so that addresses stay the same from call to call, as CUDA graphs need it. On the
    CPU the session reads the caller's arrays and there are no copies. On CUDA `placement` decides: pageable, each
    input is copied to the device from where it lies; pinned, by way of a page-locked buffer that it is first copied
    into; mapped, the GPU reads that buffer where it lies; device, the inputs are there from the start.
    """

    def __init__(self, session: Session, device: Device, feeds: Feeds, placement: Placement) -> None:
        self.session = session
        self.device = device
        self._placement = placement
        self._feeds = feeds
        self._pinned = placement in ("pinned", "mapped")
        on_gpu = device.where == "cuda"
        arrays = feeds.items()
        locked = on_gpu and self._pinned
        self._locked = {n: device.allocate_host(a.shape, a.dtype, pinned=True) for n, a in arrays} if locked else {}
        self._resident = self._on_device() if on_gpu else {}
        self._sources: dict[str, Buffer] = {}
        self._results: dict[str, Buffer] = {}
        self.steps = self._steps(on_gpu)
        self.stage_inputs()
        self.h2d()
        self.bind()
        device.synchronize()

    def _on_device(self) -> dict[str, Buffer]:
        """The inputs as the session gets them; page-locked memory has the same address on the device (UVA)."""
        if self._placement == "mapped":
            return {name: replace(buffer, where="cuda", array=None) for name, buffer in self._locked.items()}
        return {name: self.device.allocate(array.shape, array.dtype) for name, array in self._feeds.items()}

    def _steps(self, on_gpu: bool) -> dict[Stage, Callable[[], object]]:
        """The stages that exist here, in order."""
        every: dict[Stage, Callable[[], object]] = {
            "stage_inputs": self.stage_inputs,
            "h2d": self.h2d,
            "bind": self.bind,
            "execute": self.execute,
            "d2h": self.d2h,
            "extract": self.extract,
        }
        return {stage: step for stage, step in every.items() if self._missing(stage, on_gpu) is None}

    def missing(self, stage: Stage) -> str | None:
        """Why a stage does not exist here; None where it does."""
        return self._missing(stage, self.device.where == "cuda")

    def _missing(self, stage: Stage, on_gpu: bool) -> str | None:
        if not on_gpu and stage in ("h2d", "d2h"):
            return "the CPU reads and writes the host's arrays, so nothing is copied"
        if on_gpu and self._placement == "device" and stage in ("stage_inputs", "h2d"):
            return "the inputs are placed on the device before the clock starts"
        if on_gpu and self._placement == "mapped" and stage == "h2d":
            return "the GPU reads the inputs out of the host's memory"
        return None

    def stage_inputs(self) -> None:
        """Make each input contiguous, and copy it into page-locked memory where the placement says so."""
        if self._locked:
            for name, buffer in self._locked.items():
                assert buffer.array is not None
                np.copyto(buffer.array, self._feeds[name], casting="no")
            self._sources = self._locked
        else:
            self._sources = {name: host_buffer(array) for name, array in self._feeds.items()}

    def h2d(self) -> None:
        """Queue the copies of the inputs to the device; nothing on the CPU, or where they are mapped."""
        for name, buffer in self._resident.items() if self._placement != "mapped" else ():
            self.device.copy(buffer, self._sources[name])

    def bind(self) -> None:
        """Tell the session where its inputs lie: the same addresses at each call on a GPU."""
        self.session.bind(self._resident or self._sources)

    def execute(self) -> None:
        """Queue one inference."""
        self.session.enqueue()

    def d2h(self) -> None:
        """Queue the copies of the outputs that lie on the device to host memory that is used again and again."""
        for name, buffer in self.session.outputs().items():
            if buffer.where == "cuda":
                self.device.copy(self._result(name, buffer), buffer)

    def _result(self, name: str, buffer: Buffer) -> Buffer:
        """The host memory of an output. Raises CaseFailed where the output's shape changed between two runs."""
        if name not in self._results:
            self._results[name] = self.device.allocate_host(buffer.shape, buffer.dtype, self._pinned)
        result = self._results[name]
        if result.shape != buffer.shape:
            raise CaseFailed(f"output {name} changed its shape between two runs: {result.shape}, {buffer.shape}")
        return result

    def extract(self) -> dict[str, np.ndarray[Any, Any]]:
        """The caller's own copies of the outputs. The stream must be done."""
        outputs = {}
        for name, buffer in self.session.outputs().items():
            host = self._results[name] if buffer.where == "cuda" else buffer
            outputs[name] = np.array(host.array)
        return outputs

    def begin(self) -> None:
        """Queue everything from the host arrays to the copies of the outputs."""
        for stage, step in self.steps.items():
            if stage != "extract":
                step()

    def finish(self) -> dict[str, np.ndarray[Any, Any]]:
        """Wait for what `begin` queued and give the outputs."""
        self.device.synchronize()
        return self.extract()

    def poison(self) -> None:
        """Overwrite the outputs of the last run, on the device and on the host, with bytes that no run leaves.

        The device is drained before: earlier runs of a session on another stream, which nothing waited for, would
        write the right outputs over the poison.
        """
        self.device.drain()
        for buffer in (*self.session.outputs().values(), *self._results.values()):
            if buffer.array is None:
                self.device.fill(buffer, POISON)
            else:
                buffer.array.reshape(-1).view(np.uint8)[...] = POISON
        self.device.synchronize()


def host_buffer(array: np.ndarray[Any, Any]) -> Buffer:
    """A host array as a Buffer; copied only where it isn't contiguous."""
    array = np.asarray(array, order="C")  # a scalar stays one
    return Buffer("cpu", array.ctypes.data, array.shape, array.dtype, owner=array, array=array)
