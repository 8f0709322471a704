"""2:4 sparse weights: which products could use them and what is in the way, how many layers do, and what it gains."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import asdict

from inferprof import registry
from inferprof.documents.engine import Sparsity
from inferprof.report.common import CASE_COLUMNS, case_cells, factor, in_percent, name_of, optional
from inferprof.report.evidence import Evidence
from inferprof.report.fields import Field, Fields, csv_of, plain, table_of, text
from inferprof.report.model import Block, Cell, Column, Table, missing, words
from inferprof.report.profiled import profiles
from inferprof.report.section import section
from inferprof.tables import summary
from inferprof.tables.nodes import kernel_formats, layer_times, precision_truth
from inferprof.tables.records import KEY, Key, key_of, paired_without, rows_of

OPTION = "sparsity"
NOT_TRACED = "trt_nodes did not watch this case"
NOT_SAID = "the builder did not say it"
NO_DENSE = "no variant with the same options but sparsity was measured"
COLUMNS = (
    *CASE_COLUMNS,
    Column("eligible", "layers eligible", "number"),
    Column("picked", "picked", "number"),
    Column("time_percent", "% of kernel time", "number"),
    Column("gain", "speed-up", "number"),
    Column("interval", "±", "number"),
    Column("verdict", "verdict"),
    Column("dense", "against", hidden=True),
)
NOTE = (
    "Eligible: weights in 2:4 form; picked: the builder found the sparse kernel faster, both in its own words. "
    "Speed-up: over the variant with the same options but sparsity."
)

PRODUCTS: Fields = (
    text("model"),
    text("precision"),
    text("product"),
    text("dtype", "in"),
    plain("k"),
    plain("n"),
    plain("fours"),
    plain("broken"),
    Field(
        Column("obstacles", "what keeps a sparse kernel from it"),
        lambda row: words("; ".join(row["obstacles"])),
    ),
)
REASONS = (
    text("model"),
    text("precision"),
    plain("products"),
    text("reason", "what keeps a sparse kernel from them"),
    text("such_as", "such as"),
)
FREE = "nothing that the graph tells"
REASONS_NOTE = (
    "Of the products whose weights are half zeros, by the graph: sizes, alignment, the fours themselves, Q/DQ around "
    "the product. A product with several reasons counts under each. csv/sparse_products.csv has every product."
)


@section("sparsity", "Sparse weights", place=220)
def build(evidence: Evidence) -> Sequence[Block]:
    """What is in the way of sparse kernels, and a row per engine that was built with the option."""
    return (*_in_the_way(evidence), *_engines(evidence))


def _in_the_way(evidence: Evidence) -> Sequence[Block]:
    """By model, format and reason how many products; in a CSV each of them."""
    products, reasons = [], []
    for model, precision in evidence.variants:
        audit = evidence.documents[model, precision, "audit"].content
        graph = {"model": model, "precision": precision}
        by_reason: dict[str, list[str]] = {}
        for product in audit.sparse if audit else ():
            said = product.obstacles or [FREE]
            products.append({**graph, **asdict(product), "product": product.name, "obstacles": said})
            for reason in said:
                by_reason.setdefault(reason, []).append(product.name)
        for reason, names in sorted(by_reason.items(), key=lambda item: -len(item[1])):
            reasons.append({**graph, "products": len(names), "reason": reason, "such_as": names[0]})
    if not products:
        return ()
    return (
        table_of("sparse_reasons", "What keeps products from sparse kernels", REASONS, reasons, REASONS_NOTE),
        csv_of("sparse_products", "Every product with sparse weights", PRODUCTS, products),
    )


def _engines(evidence: Evidence) -> Sequence[Block]:
    """A row per engine that was built with the option; empty where none was."""
    every = ((engine.key, engine.build.content) for engine in evidence.engines)
    builds = {key: build for key, build in every if build and build.status == "ok"}
    paired = paired_without(OPTION, {key: build.options for key, build in builds.items()})
    rows = tuple(
        _row(evidence, key, build.sparsity, paired.get(key, ())) for key, build in builds.items() if build.sparsity
    )
    if not rows:
        return ()
    return (Table(OPTION, "", COLUMNS, rows, NOTE, groups=2),)


def _row(evidence: Evidence, key: Key, layers: Sparsity, dense: Sequence[Key]) -> tuple[Cell, ...]:
    """dense: the same engine without the option."""
    return (
        *case_cells(dict(zip(KEY, key, strict=True))),
        *(optional(count, str, NOT_SAID) for count in (layers.eligible, layers.picked)),
        _share_of_time(evidence, key),
        *_gain(evidence, key, dense),
    )


def _share_of_time(evidence: Evidence, sparse: Key) -> Cell:
    frame = next(
        (
            profile.frame
            for profile in profiles(evidence, registry.joining("layer"))
            if key_of(profile.case) == sparse
        ),
        None,
    )
    if frame is None:
        return missing(NOT_TRACED)
    sparsity = precision_truth.sparsity(kernel_formats.of_case(frame), layer_times.described(frame))
    return in_percent(sparsity.share)


def _gain(evidence: Evidence, sparse: Key, dense: Sequence[Key]) -> tuple[Cell, ...]:
    if not dense:
        return (*[missing(NO_DENSE)] * 2, words(""), words(""))
    plain = dict(zip(KEY, dense[0], strict=True))
    both = evidence.boundaries[evidence.boundaries[KEY].apply(tuple, axis=1).isin([sparse, dense[0]])]
    speed_ups = rows_of(summary.speed_ups(both, name_of(plain)))
    if not speed_ups or speed_ups[0]["speed_up"] is None:
        return (
            *[missing(speed_ups[0]["not_measured"] if speed_ups else NO_DENSE)] * 2,
            words(""),
            words(plain["variant"]),
        )
    row = speed_ups[0]
    return (
        *factor(row["speed_up"], row["low"], row["high"]),
        words(row["verdict"]),
        words(plain["variant"]),
    )
