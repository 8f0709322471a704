"""Where a model's weights and tokenizer lie: a hub's local cache, the hub itself, or an installed package."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inferprof.errors import UserError
from inferprof.files import sha256
from inferprof.model_spec import ModelSpec

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


def locate(spec: ModelSpec) -> ModelFiles | None:
    """The files of `repository` at `revision`, else of `package`; None where the model names neither.

    The hub's local cache comes first, then the hub unless HF_HUB_OFFLINE forbids it, then the package. Raises
    UserError where none of them has the files, or where the weights are not those of `sha256`.
    """
    repository, package = spec.options.get("repository"), spec.options.get("package")
    if repository is None and package is None:
        return None
    reasons = []
    for found in _attempts(spec, repository, package):
        if isinstance(found, ModelFiles):
            _check_digest(found, spec)
            return found
        reasons.append(found)
    raise UserError(
        f"model {spec.name}: no files ({'; '.join(reasons)}); connect to the internet once, or name under package: "
        "an installed package that carries them"
    )


def _attempts(spec: ModelSpec, repository: str | None, package: str | None) -> Iterator[ModelFiles | str]:
    """The places where the files may be, tried in turn: what is there, or why not."""
    if repository is not None:
        for local in (True, False):
            yield _from_hub(repository, spec.options["revision"], local, spec.pretrained)
    if package is not None:
        yield _from_package(package)


def _from_hub(repository: str, revision: str, local: bool, needs_weights: bool) -> ModelFiles | str:
    """A snapshot in the hub's local cache, or fetched from the hub."""
    import huggingface_hub

    where = "the local model cache" if local else "the hub"
    try:
        if not local:  # fails within seconds where there is no internet; the download itself would retry for minutes
            huggingface_hub.HfApi().model_info(repository, revision=revision, timeout=HUB_TIMEOUT_S)
        folder = huggingface_hub.snapshot_download(
            repository, revision=revision, allow_patterns=list(PATTERNS), local_files_only=local
        )
    except Exception as error:  # the hub's own errors and those of its HTTP library, which share no base class
        return f"{where}: {type(error).__name__}"
    files = ModelFiles(Path(folder), f"hub {repository}@{revision}")
    if needs_weights and not files.weights:
        return f"{where}: no *.safetensors in {repository}"
    return files


def _from_package(package: str) -> ModelFiles | str:
    """The folder inside an installed package that holds a config.json beside weights or a tokenizer."""
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        return f"package {package} is not installed"
    for root in found.submodule_search_locations:
        for config in sorted(Path(root).rglob("config.json")):
            files = ModelFiles(config.parent, f"package {package}")
            if files.weights or files.tokenizer:
                return files
    return f"package {package} holds no model"


def _check_digest(files: ModelFiles, spec: ModelSpec) -> None:
    """Compare the weights with `sha256` of the YAML, so that every origin gives the same model."""
    expected = spec.options.get("sha256")
    if expected is None or not files.weights:
        return
    actual = sha256(files.weights[0])
    if actual != expected:
        raise UserError(
            f"model {spec.name}: the weights of {files.origin} have SHA-256 {actual}, but {spec.path} asks for "
            f"{expected}; mend sha256: there if the other weights are meant"
        )
