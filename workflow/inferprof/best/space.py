"""What may be changed of a case, one thing at a time: its number format, its runtime, or an option of its variant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from inferprof import registry
from inferprof.backends.inductor import COMPILE_MODES
from inferprof.case import BATCH, Case, OptionValue, Shape, Variant
from inferprof.documents.diagnosed import Gain
from inferprof.errors import UserError
from inferprof.findings import Change, Finding
from inferprof.study import Study

TRIES: Final[Mapping[str, Sequence[OptionValue]]] = {
    "cuda_graph": (True,),
    "placement": ("pinned",),
    "tf32": (True,),
    "compile_mode": COMPILE_MODES[1:],
    "optimization_level": (5,),
}
"""Options that no RuntimeOption declares → what a search tries; for `threads` that depends on the machine."""


BUILDS: Final = 3
"""Engines that the best case is confirmed on."""
REBUILD: Final = "rebuild"


@dataclass(frozen=True)
class Spot:
    """A case with the options of its variant."""

    case: Case
    variant: Variant
    home: str
    """The shape that the search began at."""

    @property
    def name(self) -> str:
        """The case without what a search keeps; with its shape where that is another one than at the beginning."""
        shape = "" if self.case.shape == self.home else f"/{self.case.shape}"
        return f"{self.case.precision}/{self.case.backend}/{self.case.variant}{shape}"

    @property
    def batch(self) -> int:
        """How many items a call has."""
        return Shape.parse(self.case.shape).batch

    def having(self, variant: Variant, **names: str) -> Spot:
        """The same with another variant, and perhaps another format, runtime or shape."""
        return Spot(replace(self.case, variant=variant.name, **names), variant, self.home)


def home(study: Study, model: str) -> str:
    """The shape that a model is searched at: the one asked for, else its first. Raises UserError for one it lacks."""
    asked = study.best.get("shape")
    return (study.models[model].at(Shape.parse(asked)) if asked else study.shapes[model][0]).label


def check(study: Study, model: str) -> None:
    """Raise UserError for a search that cannot begin."""
    begin = baseline(study, model, home(study, model))
    if study.best["boundary"] == "device" and study.machine.gpu is None:
        raise UserError(
            "config: best: boundary: device is by a GPU's clock, and here is none; give call or end_to_end"
        )
    if reason := refusal(study, begin):
        raise UserError(f"config: baseline: {begin.name} of {model} cannot run on {study.machine.slug}: {reason}")


def baseline(study: Study, model: str, shape: str) -> Spot:
    """Where a search begins."""
    precision, backend, name = study.config["baseline"].split("/")
    return Spot(Case(model, precision, backend, name, shape), study.variant(name), shape)


def neighbours(study: Study, spot: Spot, findings: Iterable[Finding]) -> list[Spot]:
    """All that differ from a case in one thing, each once."""
    every = {each.name: each for each in _neighbours(study, spot, findings)}
    return [each for each in every.values() if changed(spot, each)]


def _neighbours(study: Study, spot: Spot, findings: Iterable[Finding]) -> Iterator[Spot]:
    for precision in study.precisions:
        yield spot.having(spot.variant, precision=precision)
    yield from filter(None, (on_runtime(study, spot, backend) for backend in study.config["backends"]))
    if study.best["per"] == "item":
        others = {**Shape.parse(spot.case.shape).as_dict(), BATCH: 0}
        alike = (s for s in study.shapes[spot.case.model] if {**s.as_dict(), BATCH: 0} == others)
        yield from (spot.having(spot.variant, shape=shape.label) for shape in alike)
    begun = baseline(study, spot.case.model, spot.home).variant.options
    for name in sorted(spot.variant.options.keys() & begun.keys()):
        kept = {option: value for option, value in spot.variant.options.items() if option != name}
        if variant := named(study, kept):  # without what the baseline began with, such as an engine's wide `profile`
            yield spot.having(variant)
    advised = [finding.change for finding in findings if finding.acts and finding.change]
    variants = [each.to for each in advised if each.by == "variant" and each.to]
    yield from with_options(study, spot, variants)


def on_runtime(study: Study, spot: Spot, backend: str) -> Spot | None:
    """The same on another runtime, with the options that it understands."""
    understood = registry.options_of(registry.backends()[backend])
    kept = {name: value for name, value in spot.variant.options.items() if name in understood}
    variant = named(study, kept)
    return spot.having(variant, backend=backend) if variant else None


def with_options(study: Study, spot: Spot, advised: Iterable[Mapping[str, Any]] = ()) -> Iterator[Spot]:
    """A case with one more option each: those advised, those of the config's variants, and those that are tried."""
    understood = registry.options_of(registry.backends()[spot.case.backend])
    alone = [{name: value} for name, values in tries(study, spot.case.backend).items() for value in values]
    for options in [*advised, *(each.options for each in study.variants.values() if each.options), *alone]:
        variant = named(study, {**spot.variant.options, **options})
        if variant and options.keys() <= understood.keys() and variant.options != spot.variant.options:
            yield spot.having(variant)


def together(study: Study, begin: Spot, others: Iterable[Spot]) -> Spot | None:
    """A case with all that others have beside it, of one option the first; None where it takes less than two."""
    options, count = dict(begin.variant.options), 0
    for other in others:
        own = {name: value for name, value in other.variant.options.items() if name not in begin.variant.options}
        if own and replace(other.case, variant=begin.case.variant) == begin.case and not own.keys() & options.keys():
            options, count = options | own, count + 1
    variant = named(study, options)
    return begin.having(variant) if variant and count > 1 else None


def tries(study: Study, backend: str) -> dict[str, Sequence[OptionValue]]:
    """The options of a runtime that a search changes → the values that it tries."""
    understood = registry.options_of(registry.backends()[backend])
    cores = study.machine.threads
    threads = sorted({max(1, cores // parts) for parts in (2, 4, cores)} - {cores}, reverse=True) if cores else ()
    on_cpu = study.machine.gpu is None or registry.backends()[backend].where == "cpu"
    every: dict[str, Sequence[OptionValue]] = {**TRIES, **({"threads": threads} if on_cpu else {})}
    own = {name: values for name, values in every.items() if name in understood}
    handed_on = registry.runtime_options(backend).items()
    return own | {
        n: option.tries for n, option in handed_on if option.tries and backend in (option.tried_on or {backend})
    }


def named(study: Study, options: Mapping[str, Any]) -> Variant | None:
    """The variant with these options: the config's where it has one. None where they have no name."""
    for variant in study.variants.values():
        if variant.options == options:
            return variant
    if not options:
        return None if "default" in study.variants else Variant()
    try:
        return Variant.spelled(options)
    except ValueError:
        return None


def built_anew(study: Study, spot: Spot) -> list[Spot]:
    """A case on new builds of its engine; of one without an engine itself."""
    if REBUILD not in registry.options_of(registry.backends()[spot.case.backend]):
        return [spot]
    built = [{**spot.variant.options, REBUILD: number + 1} for number in range(BUILDS)]
    return [spot.having(variant) for options in built if (variant := named(study, options))]


def refusal(study: Study, spot: Spot) -> str | None:
    """Why a case cannot run here."""
    try:
        planned = study.plan(spot.case, spot.variant)
    except UserError as error:
        return str(error)
    return planned.reason if planned.outcome == "refused" else None


def without_effect(before: Spot, after: Spot, operators: Collection[str] | None) -> str | None:
    """Why an option that one case has beside the other can change nothing in a graph of these operators.

    operators: None where they are not known, so that any option may.
    """
    if operators is None:
        return None
    declared = registry.runtime_options(after.case.backend)
    new = [name for name, value in after.variant.options.items() if before.variant.options.get(name) != value]
    for name in new:
        wanted = declared[name].operators if name in declared else frozenset()
        if wanted and wanted.isdisjoint(operators):
            return f"{name} changes nothing: the graph has no {' or '.join(sorted(wanted))}"
    return None


def predicted(findings: Iterable[Finding], before: Spot, after: Spot) -> Gain | None:
    """What the findings of a case promise of another one: the largest of the gains."""
    gains = [f.gain for f in findings if f.gain and f.change and _leads(f.change, before, after)]
    return max(gains, key=lambda gain: gain.high_ns, default=None)


def _leads(change: Change, before: Spot, after: Spot) -> bool:
    """Whether a change makes one case of the other, and nothing else changes with it."""
    own, other = before.case, after.case
    if own.shape != other.shape:
        sizes = Shape.parse(own.shape).as_dict()
        return change.by == "shape" and {**sizes, **change.to} == Shape.parse(other.shape).as_dict()
    if change.by == "variant":
        wanted = {**before.variant.options, **change.to}
        alike = (own.precision, own.backend) == (other.precision, other.backend)
        return bool(change.to) and alike and wanted == after.variant.options
    place = {"precision": other.precision, "backend": other.backend}
    return change.by in place and change.to == {change.by: place[change.by]}


def changed(before: Spot, after: Spot) -> frozenset[tuple[str, str, str]]:
    """All that was done to a case, to be remembered where it did not help: runtime, option and value."""
    if after.case.shape != before.case.shape:
        return frozenset({(after.case.backend, "shape", after.case.shape)})
    options = {*after.variant.options} | {*before.variant.options}
    differ = [name for name in options if after.variant.options.get(name) != before.variant.options.get(name)]
    own = after.case
    if own.backend != before.case.backend:  # its worth depends on the format, and on the options that it takes over
        return frozenset({(own.backend, "runtime", f"{own.precision}/{own.variant}")})
    if own.precision != before.case.precision:
        return frozenset({(own.backend, "precision", own.precision)})
    place = f"{own.precision}/{own.backend}"
    return frozenset((place, name, str(after.variant.options.get(name))) for name in differ)
