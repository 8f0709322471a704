"""Kernels with one fault each and one without, for a profiler to see: `faulty_kernels.py NAME…|all`.

They are CUDA C++, compiled where they run by NVRTC through cuda-core. All have the same arguments, and all but `tail`
fill the GPU with exactly one wave of blocks in which every thread does the same work, so that each shows its own
fault alone. Sizes come from the device: number of SMs, blocks that fit on one, L2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from inferprof.tables.counters.kernel_faults import Finding

ITERATIONS = 3
SMALLEST = 1 << 18
"""Elements that the arrays hold at least: `gemm_fp16_simt` needs them for its second factor."""
FLOAT_BYTES = 4
ARRAYS = 2
"""`in` and `out`, of the same length."""

SOURCE = r"""
#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS (gridDim.x * blockDim.x)

// Reads through L2 what another block read in the last round: shifted by whole warps, so that all stays aligned.
extern "C" __global__ void clean(const float* in, float* out, int n, int rounds) {
    for (int round = 0; round < rounds; ++round)
        for (int i = FIRST; i < n; i += THREADS) {
            int shifted = i + round * (int)blockDim.x;
            out[i] = 2.0f * in[shifted < n ? shifted : shifted - n] + out[i];
        }
}

// The 32 lanes of a warp read a column of a 32 x 32 tile: 32 words in one bank.
extern "C" __global__ void bank_conflicts(const float* in, float* out, int n, int rounds) {
    __shared__ float tile[32 * 32];
    for (int k = threadIdx.x; k < 32 * 32; k += blockDim.x) tile[k] = in[k];
    __syncthreads();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float sum = 0.0f;
    for (int round = 0; round < rounds; ++round) sum += tile[lane * 32 + ((warp + round) & 31)];
    out[FIRST] = sum;
}

// Each lane of a warp reads in a part of the array of its own: 32 sectors where 4 would do.
extern "C" __global__ void uncoalesced(const float* in, float* out, int n, int rounds) {
    for (int round = 0; round < rounds; ++round)
        for (int i = FIRST; i < n; i += THREADS) out[i] = in[(i % 32) * (n / 32) + i / 32] + (float)round;
}

// 48 live values in 40 registers: what is spilled fits the L1.
extern "C" __global__ void __maxnreg__(40) spills(const float* in, float* out, int n, int rounds) {
    float value[48];
#pragma unroll
    for (int j = 0; j < 48; ++j) value[j] = in[j * blockDim.x + threadIdx.x];
#pragma unroll 1
    for (int round = 0; round < rounds; ++round)
#pragma unroll
        for (int j = 0; j < 48; ++j) value[j] = value[j] * 0.5f + value[(j + 1) % 48];
    float sum = 0.0f;
#pragma unroll
    for (int j = 0; j < 48; ++j) sum += value[j];
    out[FIRST] = sum;
}

// The lanes of a warp take four ways, which share no instruction that a compiler could merge.
extern "C" __global__ void divergence(const float* in, float* out, int n, int rounds) {
    float value = in[FIRST];
    int bits = threadIdx.x;
    switch (threadIdx.x % 4) {
        case 0:
#pragma unroll 1
            for (int i = 0; i < rounds; ++i) value = value * 0.5f + 1.0f;
            break;
        case 1:
#pragma unroll 1
            for (int i = 0; i < rounds; ++i) value = __sinf(value);
            break;
        case 2:
#pragma unroll 1
            for (int i = 0; i < rounds; ++i) value = rsqrtf(value + 2.0f);
            break;
        default:
#pragma unroll 1
            for (int i = 0; i < rounds; ++i) bits = bits * 1664525 + (bits >> 7);
    }
    out[FIRST] = value + (float)bits;
}

// All threads of the grid add to one number. A float, since sums of integers are first added up within the warp.
extern "C" __global__ void atomics(const float* in, float* out, int n, int rounds) {
    float value = in[FIRST];
    for (int round = 0; round < rounds; ++round) atomicAdd(out, value);
}

// Each value is read again after four times the L2 has been read, when no cache holds it any more. 16 bytes per load,
// so that enough of them are under way to keep device memory busy.
extern "C" __global__ void l2_thrash(const float* in, float* out, int n, int rounds) {
    float sum = 0.0f;
    for (int round = 0; round < rounds; ++round)
        for (int i = FIRST; i < n / 4; i += THREADS) {
            float4 four = ((const float4*)in)[i];
            sum += four.x + four.y + four.z + four.w;
        }
    out[FIRST] = sum;
}

// One block more than fits. It waits by the clock, because arithmetic would be faster on the empty SM of the tail.
extern "C" __global__ void tail(const float* in, float* out, int n, int rounds) {
    long long start = clock64();
    while (clock64() - start < rounds) {}
    out[FIRST] = in[FIRST];
}

// One warp per block, and shared memory for a few blocks: too few warps to hide the latency of a dependent chain.
extern "C" __global__ void low_occupancy(const float* in, float* out, int n, int rounds) {
    __shared__ float buffer[12 * 1024];
    buffer[threadIdx.x] = in[FIRST];
    __syncwarp();
    float value = buffer[(threadIdx.x + rounds) % 32];
#pragma unroll 8
    for (int round = 0; round < rounds; ++round) value = value * 0.5f + 1.0f;
    out[FIRST] = value;
}

// C = A B in half precision with fma: A is n / 1024 rows of 256, B 256 rows of 1024; both lie in `in`, B first.
extern "C" __global__ void gemm_fp16_simt(const float* in, float* out, int n, int rounds) {
    const unsigned short* b = (const unsigned short*)in;
    const unsigned short* a = b + 256 * 1024;
    for (int i = FIRST; i < n; i += THREADS) {
        unsigned short sum = 0;
        const unsigned short* row = a + i / 1024 * 256;
        for (int k = 0; k < rounds; ++k)
            asm("fma.rn.f16 %0, %1, %2, %0;" : "+h"(sum) : "h"(row[k]), "h"(b[k * 1024 + i % 1024]));
        out[i] = (float)sum;
    }
}
"""


@dataclass(frozen=True)
class Shows:
    """A number of a fault's evidence, and between what it must lie by the way the kernel was made."""

    evidence: str
    least: float
    most: float


@dataclass(frozen=True)
class Made:
    """A kernel made for a fault: how it is launched, and how many times the L2 its input holds."""

    rounds: int
    fault: str | None
    """The check of tables.counters.kernel_faults that must find it; None: no check may find anything."""
    shows: Shows | None = None
    block: int = 256
    extra_blocks: int = 0
    input_in_l2s: float = 0.125
    """With an output of the same size a quarter of the L2, which holds it whatever its halves do."""


KERNELS = {
    "clean": Made(rounds=32, fault=None),
    # 32 passes where one would do: 31 of 32.
    "bank_conflicts": Made(2000, "bank_conflicts", Shows("excess_percent", 95, 97)),
    # 32 + 4 sectors for a load and a store, 4 + 4 needed: 28 of 36.
    "uncoalesced": Made(16, "uncoalesced", Shows("excess_percent", 77, 78.5)),
    # Its loop has no other memory access.
    "spills": Made(100, "spills", Shows("spill_percent", 80, 100)),
    # Four ways of 8 threads each.
    "divergence": Made(2000, "divergence", Shows("threads_per_instruction", 7, 12)),
    # Per warp 4 sectors read, and 16 or more of sums.
    # Nearly all that the threads ask for; an H100's L2 counts half as much again between its two partitions.
    "atomics": Made(16, "atomics", Shows("atomic_percent", 60, 100)),
    # Read in four rounds, of which no cache saves a third.
    "l2_thrash": Made(4, "l2_misses", Shows("times_read", 2.7, 4.2), input_in_l2s=4),
    # One SM of all works in the second half of the time. Rounds are clock cycles.
    "tail": Made(200_000, "tail", Shows("sm_idle", 40, 60), extra_blocks=1),
    # One to four warps on an SM that holds 32 to 64.
    "low_occupancy": Made(50_000, "low_occupancy", Shows("occupancy_achieved", 1, 15), block=32),
    # Rounds are the inner dimension.
    "gemm_fp16_simt": Made(256, "tensor_cores_unused"),
}
"""By name, which is the kernel's."""


def amiss(name: str, findings: Sequence[Finding]) -> Iterator[str]:
    """What of a kernel's verdicts is not as it was made: nothing, where its own fault was found and no other."""
    made = KERNELS[name]
    for finding in findings:
        own = finding.fault == made.fault
        if finding.verdict != ("found" if own else "clear"):
            yield f"{finding.fault}: {finding.verdict}, {finding.reason}"
        elif own and made.shows and not made.shows.least <= finding.evidence[made.shows.evidence] <= made.shows.most:
            yield f"{finding.fault}: {finding.evidence}, not {made.shows}"


@dataclass(frozen=True)
class Launch:
    """Blocks, and elements of each array."""

    grid: int
    elements: int

    @property
    def reads(self) -> int:
        """Bytes that the kernel must read at least: those of its input."""
        return FLOAT_BYTES * self.elements


def plan(made: Made, sms: int, resident: int, l2_bytes: int) -> Launch:
    """The launch on a GPU of `sms` SMs that hold `resident` blocks each: one wave, equal work for every thread."""
    grid = sms * resident + made.extra_blocks
    threads = grid * made.block
    wanted = max(int(made.input_in_l2s * l2_bytes) // FLOAT_BYTES, SMALLEST)
    return Launch(grid, -(-wanted // threads) * threads)


def compile_for(arch: str, log: Any = None) -> Any:
    """All kernels as an ObjectCode with SASS for `sm_90`, `sm_120`…; the compiler's messages go to `log.write`."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch=arch, std="c++17", ptxas_options="-v" if log else None)
    return Program(SOURCE, "c++", options).compile("cubin", logs=log)


class Gpu:
    """The kernels on the current GPU."""

    def __init__(self) -> None:
        from cuda.core import Device, Stream

        from inferprof.devices.cuda import CudaDevice

        self.device = CudaDevice()
        assert self.device.stream is not None
        self._core = Device()
        self._core.set_current()
        self._stream = Stream.from_handle(self.device.stream)
        self._code = compile_for(f"sm_{self._core.arch}")

    def plan(self, name: str) -> Launch:
        """How `name` is launched here."""
        made, properties = KERNELS[name], self._core.properties
        resident = self._code.get_kernel(name).occupancy.max_active_blocks_per_multiprocessor(made.block, 0)
        return plan(made, properties.multiprocessor_count, resident, properties.l2_cache_size)

    def prepare(self, name: str) -> Any:
        """Arrays of zeros on the device, and a function that queues the kernel on them."""
        from cuda.core import LaunchConfig, launch

        made, planned, kernel = KERNELS[name], self.plan(name), self._code.get_kernel(name)
        arrays = [self.device.allocate((planned.elements,), np.dtype(np.float32)) for _ in range(ARRAYS)]
        for array in arrays:
            self.device.fill(array, 0)
        config = LaunchConfig(grid=planned.grid, block=made.block)
        numbers = np.int32(planned.elements), np.int32(made.rounds)
        return lambda: launch(self._stream, config, kernel, *(array.ptr for array in arrays), *numbers)


def run(names: Sequence[str]) -> None:
    """Warm each kernel up, then launch each once in every iteration, in the ranges that a workload has."""
    from inferprof.devices.ranges import collected, nvtx_range

    gpu = Gpu()
    work = [gpu.prepare(name) for name in names]
    for queue in work:
        queue()
    gpu.device.synchronize()
    with collected(gpu.device):
        for _ in range(ITERATIONS):
            with nvtx_range("iteration"):
                for queue in work:
                    queue()
                gpu.device.synchronize()


def main(arguments: Sequence[str]) -> None:
    """Run the kernels of these names, or all. Raises SystemExit for a name that does not exist."""
    names = list(KERNELS) if list(arguments) == ["all"] else list(arguments)
    if not names or not set(names) <= set(KERNELS):
        raise SystemExit(f"usage: {Path(__file__).name} NAME…|all, with NAME of {', '.join(KERNELS)}")
    run(names)


if __name__ == "__main__":
    main(sys.argv[1:])
