"""Names of copies in an export of Nsight Systems: their direction, and which memory of the host they use."""

from __future__ import annotations

from typing import Final

from inferprof.tables.trace.api_kind import PAGEABLE

_COPY_KINDS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
    11: "HtoD unified memory",
    12: "DtoH unified memory",
    13: "DtoD unified memory",
}
"""ENUM_CUDA_MEMCPY_OPER, whose first ten are CUpti_ActivityMemcpyKind."""
_HOST_MEMORY: Final = {0: PAGEABLE, 1: "pinned", 4: "managed", 6: "managed"}
"""ENUM_CUDA_MEM_KIND, where it is host memory or may be."""


def copy_name(kind: int, source: int, target: int) -> str:
    """`HtoD pageable`, `DtoH pinned`, `DtoD`: the direction, and what the host's memory is where there is any."""
    direction = _COPY_KINDS.get(kind, f"copy kind {kind}")
    host = {"HtoD": source, "HtoA": source, "DtoH": target, "AtoH": target}.get(direction)
    memory = None if host is None else _HOST_MEMORY.get(host)
    return f"{direction} {memory}" if memory else direction
