"""Which files a model is made of, and what becomes of it: asked for when a study is planned."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from inferprof import documents
from inferprof.case import PARALLEL
from inferprof.files import sha256, unless_damaged
from inferprof.model import data, onnx_reader
from inferprof.model.model_spec import ModelSpec, load
from inferprof.yaml_file import read_yaml


@functools.cache  # asked for once per job
def is_exported(path: Path) -> bool:
    """Whether a model becomes an ONNX file."""
    return load(path).exported


@functools.cache  # asked for once per job
def description(path: Path) -> str:
    """The SHA-256 of what a model's YAML file says, whatever its comments, spaces and the order of its keys.

    Empty for a bare ONNX file, of which each byte counts. Raises UserError where it isn't YAML.
    """
    if path.suffix == ".onnx":
        return ""
    return hashlib.sha256(json.dumps(read_yaml(path), sort_keys=True, default=str).encode()).hexdigest()


@functools.cache  # asked for once per job
def all_of(path: Path) -> list[Path]:
    """What a model is made of besides its description: ONNX files with the weights beside them, the user's Python,
    what it is fed from."""
    return _of(load(path))


def _of(spec: ModelSpec) -> list[Path]:
    path = spec.path
    graphs = [file for file in (spec.onnx_path, *spec.ready_made.values()) if file]
    paths = [*graphs, *itertools.chain.from_iterable(map(onnx_reader.weight_files, graphs)), *data.files(spec)]
    functions = [spec.options[key] for key in ("python", PARALLEL) if key in spec.options]
    paths += [path.parent / (function.split(":")[0].replace(".", "/") + ".py") for function in functions]
    # A module may also be an installed package, and then there is no file beside the description.
    return list(dict.fromkeys(file for file in paths if file != path and file.exists()))


def digests(spec: ModelSpec) -> dict[str, str]:
    """The SHA-256 of a model's description and of each file of `all_of`, by its path from the folder that holds
    models/; by its name alone where it lies elsewhere."""
    root = spec.path.absolute().parent.parent
    files = [file.absolute() for file in (spec.path, *_of(spec)) if file.is_file()]
    return {
        file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name: sha256(file) for file in files
    }


def made_otherwise(models: Mapping[str, Path], onnx: Path) -> Iterator[str]:
    """Of each model whose ONNX file was made by another description than there is, that it was, in a line.

    onnx: results/onnx. Snakemake itself tells, and makes it again, but not in results that were copied without what
    it keeps beside them.
    """
    for name, path in models.items():
        facts = onnx / name / "fp32.convert.json"
        document = unless_damaged(documents.read, facts, "convert") if facts.is_file() else None
        made = document.made_from.get(f"{path.parent.name}/{path.name}") if document else None
        if made and made != sha256(path):
            yield (
                f"{path} is not what {facts.with_name('fp32.onnx')} was made from. What changed only .snakemake "
                f"would tell, which is not here: if it matters, remove {onnx / name}"
            )
