"""Documents about a study: its config, the profilers that could watch none of it, and the bundle of it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from inferprof.documents.base import Count, Document, NotNegative

Threshold = NotNegative
MachineName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$(?!\n)")]
Digest = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$(?!\n)")]


class Asked(Document):
    """What the answer of a report is about."""

    shape: str | None = None
    boundary: Literal["device", "call", "end_to_end"] = "end_to_end"


class StudyConfig(Document):
    """results/reports/{study}/config.json: the config that the cases came from."""

    baseline: str | None
    models: list[str] = []
    precisions: list[str | dict[str, Any]] = []
    thresholds: dict[str, Threshold] = {}
    answer: Asked = field(default_factory=Asked)
    variants: list[dict[str, Any]] = []
    protocol: dict[str, Any] = {}
    profilers: list[str] = []
    captures: Literal["winners", "all"] = "winners"


class BundledFile(Document, forbid_unknown_fields=True):
    """A file of a bundle."""

    bytes: Count
    sha256: Digest


class LeftOut(Document, forbid_unknown_fields=True):
    """A file that --max-size left no room for, or that nobody can read."""

    file: str
    bytes: Count


StudyFolder = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)?$(?!\n)",
        description="the study's folder under reports/",
    ),
]
Baseline = Annotated[str, Meta(pattern=r"^[\w.-]+/[\w.-]+/[\w.-]+$(?!\n)")]


class Bundle(Document, forbid_unknown_fields=True):
    """The manifest of a bundle (bundle.json)."""

    schema: Annotated[Literal[1], Meta(description="version of this layout")]
    study: StudyFolder
    machine: Annotated[MachineName, Meta(description="folder of the machine that measured")]
    baseline: Annotated[Baseline | None, Meta(description="precision/backend/variant that speed-ups are against")]
    inferprof: Annotated[
        str | None, Meta(description="version that wrote the bundle; null or `unknown` of a folder on PYTHONPATH")
    ]
    git: Annotated[list[str], Meta(description="commits that measured, out of the records")]
    packages: Annotated[
        dict[str, Any], Meta(description="package → version, or null and the reason, out of environment.json")
    ]
    last_measured: Annotated[str | None, Meta(description="when the latest record was started")]
    left_out: Annotated[
        list[LeftOut], Meta(description="files that --max-size left no room for, or that nobody can read")
    ]
    files: Annotated[dict[str, BundledFile], Meta(description="path below the results folder → its content")]
