"""Why Nsight Compute could not watch a run, out of what it printed, and what to do about it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from inferprof.machine import hardware


@dataclass(frozen=True)
class Known:
    """Something that ncu prints, and the reason of the refusal: {kernel} and {error} are filled in."""

    printed: re.Pattern[str]
    reason: str


NOTHING_SEEN: Final = Known(
    # Where the program itself failed, that is the error.
    re.compile(r"\A(?!.*returned an error code).*No kernels were profiled", re.DOTALL),
    "it saw none of the kernels that it was to look into: the record of the run says if that failed; "
    "if not, capture the timeline again, whose kernels are no longer the run's",
)
REFUSALS: Final = (
    Known(re.compile(r"ERR_NVGPUCTRPERM"), hardware.NOT_PERMITTED),
    Known(
        re.compile(r"driver resource was unavailable"),
        "the counters are held by another tool: pause DCGM (`dcgmi profile --pause`) or end the other profiler, "
        "then capture again",
    ),
    Known(
        re.compile(r"LibraryNotLoaded"),
        "this ncu does not fit the driver: install the Nsight Compute of the driver's CUDA version or a newer one",
    ),
    Known(
        re.compile(r'Failed to profile "(?P<kernel>[^"]+)"'),
        "the kernel {kernel} cannot be replayed ({error}): leave the case to nsys, or profile it by hand with "
        "`ncu --replay-mode application`",
    ),
    NOTHING_SEEN,
)
"""As ncu 2022 to 2025 print it. The last one is what is left where nothing else explains it."""
_ERROR: Final = re.compile(r"^==ERROR== (?!Failed to profile|An error was reported)(.+)$", re.MULTILINE)


def refusal(log: str) -> str | None:
    """The reason, or None where ncu could watch; also where the run itself failed, which is no matter of ncu's."""
    for candidate in REFUSALS:
        if match := candidate.printed.search(log):
            message = _ERROR.search(log)
            words = {**match.groupdict(), "error": message[1].strip() if message else "ncu gives no reason"}
            return candidate.reason.format_map(words)
    return None


def saw_nothing(log: str) -> bool:
    """Whether ncu worked, but none of the launches was one that it was to look into."""
    return refusal(log) == NOTHING_SEEN.reason
