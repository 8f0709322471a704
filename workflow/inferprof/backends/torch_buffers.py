"""Buffers and torch's tensors on the same memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np

from inferprof.device import Buffer, Device

if TYPE_CHECKING:
    import torch


def as_tensor(buffer: Buffer) -> torch.Tensor:
    """The buffer as a tensor on the same memory."""
    import torch

    if buffer.array is not None:
        return torch.from_numpy(buffer.array)
    interface = {"shape": buffer.shape, "typestr": buffer.dtype.str, "data": (buffer.ptr, False), "version": 3}
    return torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device="cuda")


def as_buffer(tensor: torch.Tensor, device: Device) -> Buffer:
    """The tensor as a buffer on the same memory, which the buffer keeps alive."""
    tensor = tensor.contiguous()
    if device.where == "cpu":
        array = tensor.numpy()
        return Buffer("cpu", tensor.data_ptr(), tuple(tensor.shape), array.dtype, owner=tensor, array=array)
    dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
    return Buffer("cuda", tensor.data_ptr(), tuple(tensor.shape), dtype, owner=tensor)
