"""How fast this GPU multiplies matrices of each type and reads its memory, measured: the roofs of a roofline.

What a library's best kernel reaches, not what a datasheet promises at a clock that the power limit may not allow. A
roof is what nothing exceeds, so the fastest sample counts: under a long load the power limit takes a tenth.
Takes about 10 s. Uses torch, whose cuBLAS is what most frameworks multiply with.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from inferprof.device import Device
from inferprof.devices.bandwidth import samples_ns

GEMM_SIZES = (4096, 8192)
VECTOR_BYTES = 1 << 29
"""512 MiB, beyond the L2 cache of any GPU."""
SECONDS = 0.2
"""Per kind, size and layout."""
IN_A_ROW = 4
METHOD = (
    "square matrix products of normal random values by torch, the second matrix transposed or, in the types of its "
    "matmul, as it is; four in a row on one stream between events, 3 warm-ups; the fastest of all. Read: a sum of "
    "one vector; triad: a = b + s * c of three; median"
)

Work = Callable[[], Any]


@dataclass(frozen=True)
class Gemm:
    """A kind of matrix product. `prepare` takes torch and a size and returns what multiplies two such matrices, for
    each layout."""

    name: str
    """As the columns of peaks.csv."""
    needs: tuple[int, int]
    """The first compute capability whose tensor cores, or CUDA cores, multiply in it."""
    prepare: Callable[[Any, int], tuple[Work, ...]]


def measure(device: Device, clock: Callable[[], int] = time.perf_counter_ns) -> dict[str, Any]:
    """The ceilings of a GPU, for results/{machine}/ceilings.json; without torch and CUDA, why there are none.

    `gemm`: kind → `flops_per_s` and `by_size` (matrix size → ns of the fastest); `memory`: read | triad →
    `bytes_per_s`; in place of either `not_measured` with the reason. `l2_bytes`: the L2 cache, as the driver says.
    """
    try:
        import torch
    except ImportError:
        return {"not_measured": "torch is not installed, which ceilings are measured with"}
    if not torch.cuda.is_available():
        return {"not_measured": f"torch {torch.__version__} sees no CUDA device"}
    capability = torch.cuda.get_device_capability()
    before = torch.get_float32_matmul_precision()
    try:
        with torch.cuda.stream(torch.cuda.ExternalStream(device.stream)):
            memory = _memory(torch, device, clock)
            gemm = {kind.name: _gemm(torch, device, kind, capability, clock) for kind in GEMMS}
    finally:
        torch.set_float32_matmul_precision(before)
    return {
        "method": METHOD,
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "l2_bytes": torch.cuda.get_device_properties().L2_cache_size,
        "gemm": gemm,
        "memory": memory,
    }


def _gemm(
    torch: Any, device: Device, kind: Gemm, capability: tuple[int, int], clock: Callable[[], int]
) -> dict[str, Any]:
    if capability < kind.needs:
        have, needs = (".".join(map(str, version)) for version in (capability, kind.needs))
        return {"not_measured": f"compute capability {have}: {kind.name} needs {needs}"}
    by_size: dict[int, float] = {}
    for size in GEMM_SIZES:
        try:
            by_size[size] = min(min(_samples(device, work, clock)) for work in kind.prepare(torch, size))
        except (RuntimeError, ValueError) as error:  # torch's cuBLAS does not have it here, or too little memory
            if not by_size:
                return {"not_measured": f"torch {torch.__version__}: {str(error).strip().splitlines()[0]}"}
            break
    return rates(by_size)


def _memory(torch: Any, device: Device, clock: Callable[[], int]) -> dict[str, Any]:
    """Bytes per second of a sum, which reads, and of STREAM's triad, which reads two vectors and writes one."""
    try:
        a, b, c = (torch.ones(VECTOR_BYTES // 4, device="cuda") for _ in range(3))
    except torch.OutOfMemoryError:
        full = {"not_measured": f"out of memory on the GPU ({3 * VECTOR_BYTES} bytes)"}
        return {"read": full, "triad": full}
    read = statistics.median(_samples(device, lambda: torch.sum(b), clock))
    triad = statistics.median(_samples(device, lambda: torch.add(b, c, alpha=2.0, out=a), clock))
    return bandwidths(VECTOR_BYTES, read, triad)


def rates(by_size: Mapping[int, float]) -> dict[str, Any]:
    """The entry of a kind of matrix product: size → ns."""
    return {
        "flops_per_s": max(2 * size**3 / ns * 1e9 for size, ns in by_size.items()),
        "by_size": {str(size): ns for size, ns in by_size.items()},
    }


def bandwidths(nbytes: int, read: float, triad: float) -> dict[str, Any]:
    """The entry of the memory: the ns of a read of a vector of so many bytes, and of a triad of three."""
    return {"read": {"bytes_per_s": nbytes / read * 1e9}, "triad": {"bytes_per_s": 3 * nbytes / triad * 1e9}}


def _samples(device: Device, work: Work, clock: Callable[[], int]) -> list[float]:
    """The ns of one of IN_A_ROW, behind the first of which the launches of the others hide."""

    def several() -> None:
        for _ in range(IN_A_ROW):
            work()

    return samples_ns(lambda: device.timed(several)() / IN_A_ROW, clock, SECONDS)


# --- kinds of matrix products ----------------------------------------------------------------------------------


def _plain(dtype: str, tf32: bool = False) -> Callable[[Any, int], tuple[Work, ...]]:
    """torch.matmul of a type, accumulated in fp32."""

    def prepare(torch: Any, size: int) -> tuple[Work, ...]:
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        a, b = (torch.randn(size, size, device="cuda", dtype=getattr(torch, dtype)) for _ in range(2))
        return lambda: torch.matmul(a, b.t()), lambda: torch.matmul(a, b)

    return prepare


def _int8(torch: Any, size: int) -> tuple[Work, ...]:
    a, b = (torch.randint(-128, 128, (size, size), device="cuda", dtype=torch.int8) for _ in range(2))
    return (lambda: torch._int_mm(a, b.t()),)


def _fp8(torch: Any, size: int) -> tuple[Work, ...]:
    """E4M3 with one scale per matrix, accumulated as fast as the tensor cores can."""
    a, b = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device="cuda")
    options = {"scale_a": scale, "scale_b": scale, "out_dtype": torch.bfloat16, "use_fast_accum": True}
    return (lambda: torch._scaled_mm(a, b.t(), **options),)


def _mxfp8(torch: Any, size: int) -> tuple[Work, ...]:
    """E4M3 with a power of two for each 32 values. Unproven: no GPU of compute capability 10.0 was at hand."""
    a, b = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    return _block_scaled(torch, a, b, torch.ones(size * size // 32, device="cuda").to(torch.float8_e8m0fnu))


def _nvfp4(torch: Any, size: int) -> tuple[Work, ...]:
    """E2M1, two to a byte, with an E4M3 scale for each 16 values. Unproven likewise."""
    packed = (torch.randint(0, 256, (size, size // 2), device="cuda", dtype=torch.uint8) for _ in range(2))
    a, b = (values.view(torch.float4_e2m1fn_x2) for values in packed)
    return _block_scaled(torch, a, b, torch.ones(size * size // 16, device="cuda").to(torch.float8_e4m3fn))


def _block_scaled(torch: Any, a: Any, b: Any, scales: Any) -> tuple[Work, ...]:
    """The scales of all blocks are one, so that their swizzled order does not matter."""
    return (lambda: torch._scaled_mm(a, b.t(), scale_a=scales, scale_b=scales, out_dtype=torch.bfloat16),)


GEMMS = (
    Gemm("fp32", (0, 0), _plain("float32")),
    Gemm("tf32", (8, 0), _plain("float32", tf32=True)),
    Gemm("fp16", (7, 0), _plain("float16")),
    Gemm("bf16", (8, 0), _plain("bfloat16")),
    Gemm("int8", (7, 5), _int8),
    Gemm("fp8", (8, 9), _fp8),
    Gemm("mxfp8", (10, 0), _mxfp8),
    Gemm("fp4", (10, 0), _nvfp4),
)
"""The unproven last: a kernel that fails may take the CUDA context with it."""
