"""What CUDA's driver tells of each GPU and NVML does not: its SMs, and what it has to do with the host's memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HOST_MEMORY = {"integrated": "INTEGRATED", "host_page_tables": "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES"}
"""Fact of a GPU → CUDA's attribute. GB10 and Thor have both or the first, Grace Hopper and Grace Blackwell the second
(CUDA Programming Guide, Unified Memory)."""


def sm_counts() -> dict[str, int]:
    """Streaming multiprocessors by the UUID of each GPU that CUDA sees; NVML does not tell them."""
    counts = _cuda_attributes({"sm_count": "MULTIPROCESSOR_COUNT"})
    return {uuid: facts["sm_count"] for uuid, facts in counts.items()}


def host_memory() -> dict[str, dict[str, bool]]:
    """By the UUID of each GPU: whether it shares the host's memory, and whether it reads that by its page tables."""
    attributes = _cuda_attributes(HOST_MEMORY)
    return {uuid: {name: bool(value) for name, value in facts.items()} for uuid, facts in attributes.items()}


def _cuda_attributes(names: Mapping[str, str]) -> dict[str, dict[str, int]]:
    """Attributes of each GPU that CUDA sees, by its UUID."""
    import uuid

    from cuda.bindings import driver

    def checked(result: tuple[Any, ...]) -> Any:
        if int(result[0]):
            raise OSError(f"CUDA driver: {result[0].name}")
        return result[1] if len(result) > 1 else None

    def of(device: Any) -> dict[str, int]:
        attributes = {
            name: getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{key}") for name, key in names.items()
        }
        return {name: int(checked(driver.cuDeviceGetAttribute(key, device))) for name, key in attributes.items()}

    checked(driver.cuInit(0))
    devices = [checked(driver.cuDeviceGet(index)) for index in range(checked(driver.cuDeviceGetCount()))]
    return {
        str(uuid.UUID(bytes=bytes(checked(driver.cuDeviceGetUuid(device)).bytes))): of(device) for device in devices
    }
