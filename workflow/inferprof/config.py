"""The parts of a config, checked: what the study works with, or one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from inferprof import registry
from inferprof.allowed import Allowed, check
from inferprof.case import CONTEXT, TOKENS, TUNED_ANEW, TUNED_BY_LIBRARY, TUNING, OptionValue, Shape, Variant
from inferprof.documents.serving import NEEDS_PROMPTS, NO_PROMPTS, ServingPolicy
from inferprof.errors import UserError, each, for_each, unknown
from inferprof.model import onnx_file
from inferprof.model.model_spec import ModelSpec, load
from inferprof.yaml_file import check_schema, yaml_value

Exclusion: TypeAlias = Mapping[str, str | Sequence[str]]
"""An entry of `exclude:`."""
DEFAULTS: Mapping[str, Any] = {
    "machine": "auto",
    "variants": [{"name": "default"}],
    "profilers": [],
    "target": [],
    "baseline": "fp32/ort_cpu/default",
    "exclude": [],
    "thresholds": {},
    "answer": {},
    "best": {},
    "repeat": "contenders",
    "captures": "winners",
    "serving": [],
}
BEST: Mapping[str, Any] = {"boundary": "end_to_end", "per": "call", "tolerance": 0.03, "budget_min": 10}
TEXTS = frozenset({"models", "backends", "shapes", "profilers", "target"})
"""Lists of text, also where that reads like a number: "12.0" under `target:`."""
PROTOCOL: Mapping[str, Any] = {
    "rounds": 3,
    "cpu_rounds": 1,
    "budget_s": 2.0,
    "interval": 0.01,
    "accuracy_samples": 64,
    "seed": 0,
    "limit_s": 3600,
}


def with_defaults(given: Mapping[str, Any]) -> dict[str, Any]:
    """The config with DEFAULTS filled in, checked against its schema."""
    if not isinstance(given, Mapping):
        raise UserError(f"config: {given or 'nothing'!r} is no mapping of keys to values; config.yaml shows the keys")
    config = {**DEFAULTS, **given}
    if isinstance(config["target"], list):
        config["target"] = [str(entry) if type(entry) is float else entry for entry in config["target"]]
    check_schema(config, "config", "config")
    if config["thresholds"]:
        check_names("thresholds", config["thresholds"], registry.thresholds())
    return config


def as_in_a_file(config: Mapping[str, Any], given: Iterable[str]) -> dict[str, Any]:
    """The config with the keys that `--config` set as a file would have them.

    Snakemake leaves numbers and booleans inside of their lists and mappings as text.
    """
    return {**config, **{name: _typed(config[name]) for name in given if name not in TEXTS}}


def _typed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    if not isinstance(value, str):
        return value
    try:
        read = yaml_value(value)
    except ValueError:
        return value
    return read if isinstance(read, int | float) else value


def models(names: Sequence[str], paths: Mapping[str, Path]) -> tuple[dict[str, ModelSpec], dict[str, UserError]]:
    """The descriptions of the chosen models, and what is wrong with those that nothing can be planned of.

    Ready-made files must be of number formats that exist. Raises UserError where no model is whole.
    """
    from inferprof.model import model_files  # with NumPy, which most verbs start without

    check_names("models", names, paths)

    def checked(name: str) -> ModelSpec:
        spec = load(paths[name])
        check_names(f"precisions in variants: of {spec.path}:", spec.ready_made, registry.precisions())
        edited = "python" in spec.options  # by a function that the export runs
        if spec.onnx_path and spec.onnx_path != spec.path and not edited:
            onnx_file.check_description(spec, spec.onnx_path)
        model_files.all_of(paths[name])  # read by each job of it
        return spec

    whole, broken = each(names, checked)
    return whole or for_each("models", names, checked), broken


def precisions(entries: Sequence[str | Mapping[str, OptionValue]]) -> dict[str, dict[str, OptionValue]]:
    """Precision → options, with the format's defaults filled in; unknown names, options and values are refused."""
    given = [({"name": entry} if isinstance(entry, str) else dict(entry)) for entry in entries]
    names = [str(entry["name"]) for entry in given]
    check_names("precisions", names, registry.precisions())
    chosen: dict[str, dict[str, OptionValue]] = {}
    for name, entry in zip(names, given, strict=True):
        if name in chosen:
            raise UserError(f"config: precisions: {name} is listed twice; give its options in one entry")
        precision = registry.precisions()[name]
        options = {key: value for key, value in entry.items() if key != "name"}
        registry.check_precision(precision, options)
        chosen[name] = {**precision.options, **options}
    return chosen


def variants(entries: Sequence[Mapping[str, Any]]) -> dict[str, Variant]:
    """Variant name → variant; an option that no backend understands is refused, and a value that it can't have."""
    understood: dict[str, Allowed] = {}
    for backend in registry.backends().values():
        understood |= registry.allowed_of(backend)
    chosen: dict[str, Variant] = {}
    for entry in entries:
        variant = Variant(entry["name"], {key: value for key, value in entry.items() if key != "name"})
        check(f"variant {variant.name}", variant.options, understood)
        if variant.name in chosen:
            raise UserError(f"config: variants: two are named {variant.name}")
        chosen[variant.name] = variant
    for variant in chosen.values():
        named, _, shape = variant.text(TUNING, TUNED_ANEW).partition("/")
        allowed = {*chosen, TUNED_ANEW, TUNED_BY_LIBRARY} - {variant.name}
        check_names(f"variants in {TUNING}: of variant {variant.name}:", [named], allowed)
        if shape:
            Shape.parse(shape)
    return chosen


def serving(
    entries: Sequence[Mapping[str, Any]],
    shapes: Mapping[str, Sequence[Shape]],
    cached: Collection[str] = (),
    broken: Collection[str] = (),
) -> dict[str, ServingPolicy]:
    """Name → policy. `shapes`: each model of the study → its shapes, which a policy's batches are padded to.
    `cached`: the models with a KV cache; `broken`: those without shapes, since nothing can be planned of them."""
    policies: dict[str, ServingPolicy] = {}
    for entry in entries:
        policy = serving_entry(entry)
        if policy.name in policies:
            raise UserError(f"config: serving: two are named {policy.name}")
        check_names(f"models in serving: of {policy.name}:", policy.models, {*shapes, *broken})
        for model in [name for name in policy.models or shapes if name in shapes]:
            _check_served(policy, model, shapes[model], has_cache=model in cached)
        policies[policy.name] = policy
    return policies


def _check_served(policy: ServingPolicy, model: str, shapes_: Sequence[Shape], *, has_cache: bool) -> None:
    from inferprof.queueing.policy import trace_of  # with NumPy, which most verbs start without

    where = f"config: serving: {policy.name}:"
    trace_of(policy)
    if has_cache != policy.generates:
        raise UserError(f"{where} {model}: {NEEDS_PROMPTS if has_cache else NO_PROMPTS}")
    if any(is_served(policy, shape) for shape in shapes_):
        return
    if policy.prompts:
        needed = f"b{policy.max_batch}_{CONTEXT}{policy.prompts[1]}"
        raise UserError(
            f"{where} {model} has no shape {needed} under shapes: {', '.join(map(str, shapes_))}; it stands for "
            f"{policy.max_batch} requests with prompts of up to {policy.prompts[1]} tokens"
        )
    batches = ", ".join(map(str, sorted({shape.batch for shape in shapes_})))
    raise UserError(
        f"{where} max_batch {policy.max_batch} is no batch of {model} under shapes: {batches}; batches are padded to "
        "measured ones"
    )


def is_served(policy: ServingPolicy, shape: Shape) -> bool:
    """Whether cases of a shape are put under load by a policy: those of its largest batch, and of a model with a KV
    cache those that decode behind its longest prompt."""
    sizes = shape.as_dict()
    decodes = not policy.prompts or (sizes.get(CONTEXT) == policy.prompts[1] and TOKENS not in sizes)
    return shape.batch == policy.max_batch and decodes


WRITTEN: Mapping[str, str] = {
    "arrivals": "poisson, constant, gamma:SHAPE, trace:FILE with a moment in seconds on each line",
    "name": "letters, digits, _ and -, 100 at most: it is a part of paths",
}
"""What is written by a pattern in an entry of `serving:`."""


def serving_entry(entry: Mapping[str, Any]) -> ServingPolicy:
    """A policy of `serving:`, or one line that says what is wrong in it."""
    try:
        return msgspec.convert(dict(entry), ServingPolicy)
    except msgspec.ValidationError as error:
        _, _, key = str(error).rstrip("`").rpartition("$.")
        allowed = WRITTEN.get(key)
        reason = f"{key} {entry[key]!r}: allowed: {allowed}" if allowed else str(error)
        raise UserError(f"serving: {entry.get('name', '(no name)')}: {reason}") from None


def sized(spec: ModelSpec, labels: Sequence[str]) -> ModelSpec:
    """The model with the sizes of the first shape that gives all those which its description lacks, if one does."""
    given = (Shape.parse(label) for label in labels)
    complete = (shape for shape in given if spec.has(shape) and {*spec.unsized} <= shape.as_dict().keys())
    shape = next(complete, None) if spec.unsized else None
    return spec.sized(shape) if shape else spec


def shapes(spec: ModelSpec, labels: Sequence[str]) -> list[Shape]:
    """The shapes of the config that fit the model's symbols, resolved; at least one must."""
    resolved = [shape for label in labels if (shape := spec.resolve(Shape.parse(label)))]
    if not resolved:
        raise UserError(
            f"config: shapes: none of {', '.join(labels)} fits model {spec.name}, "
            f"whose symbols are {', '.join(spec.symbols) or 'none'}"
        )
    return list(dict.fromkeys(resolved))


def check_shapes(specs: Mapping[str, ModelSpec], labels: Sequence[str]) -> None:
    """Refuse a shape that fits no model of the study: it would be left out, and nobody told."""
    for label in labels:
        if not any(spec.has(Shape.parse(label)) for spec in specs.values()):
            symbols = "; ".join(f"{name}: {', '.join(spec.symbols) or 'none'}" for name, spec in specs.items())
            raise UserError(f"config: shapes: {label} fits no model of the study, whose symbols are {symbols}")


def check_asked(key: str, asked: Mapping[str, Any], labels: Sequence[str]) -> None:
    """Refuse what is asked about a shape that the study does not have."""
    if "shape" in asked and not any(Shape.parse(asked["shape"]).within(Shape.parse(label)) for label in labels):
        raise UserError(f"config: {key}: shape: {asked['shape']} is none of the study's: {', '.join(labels)}")


def check_baseline(baseline: str, known_variants: Iterable[str]) -> None:
    """Refuse a baseline whose parts do not exist."""
    precision, backend, variant = baseline.split("/")
    check_names("precisions in baseline:", [precision], registry.precisions())
    check_names("backends in baseline:", [backend], registry.backends())
    check_names("variants in baseline:", [variant], known_variants)


def check_exclude(entries: Iterable[Exclusion], names_of: Mapping[str, Iterable[str]]) -> None:
    """Refuse an exclusion that names what does not exist: it would exclude nothing. `names_of`: kind → names."""
    for entry in entries:
        for key, names in names_of.items():
            check_names(f"{key}s in exclude:", alternatives(entry, key), names)
        for shape in alternatives(entry, "shape"):
            Shape.parse(shape)


def alternatives(entry: Exclusion, key: str) -> tuple[str, ...]:
    """The names that an exclusion gives for a key: one, several or none."""
    given = entry.get(key, ())
    return (given,) if isinstance(given, str) else tuple(given)


def check_names(kind: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    """Refuse names that do not exist, with those that do."""
    existing = allowed if isinstance(allowed, Mapping) else set(allowed)
    if missing := [name for name in names if name not in existing]:
        raise unknown(kind, missing, existing)
