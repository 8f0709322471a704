"""Whether a case computed in the number format that it was asked for, and what conversions and sparse weights did.

All of it rests on nodes.kernel_formats, whose rows these functions take; what nothing tells is in the shares too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from inferprof import registry
from inferprof.errors import UserError
from inferprof.tables.nodes.kernel_formats import NOT_TOLD, is_region
from inferprof.tables.nodes.trt_engine import Layer
from inferprof.tables.records import rows_of
from inferprof.tables.trace.kernel_class import EITHER_FP8

DETAILED: Final = "build the engine with --profilingVerbosity=detailed and export its layers (--exportLayerInfo)"
SHOWN: Final = 10
"""Kernels in another format that are listed."""


@dataclass(frozen=True)
class Sparsity:
    """Layers that TensorRT ran with 2:4 sparse kernels, and their share of all kernel time."""

    layers: tuple[str, ...]
    duration_ns: int
    share: float


def by_dtype(kernels: pd.DataFrame) -> pd.DataFrame:
    """Per kind of work (matrix: True, False) and format, longest first: duration_ns, and share of the kind's time."""
    table = kernels.groupby(["matrix", "dtype"])["duration_ns"].sum().reset_index()
    table["share"] = table["duration_ns"] / table.groupby("matrix")["duration_ns"].transform("sum")
    return table.sort_values(["matrix", "duration_ns"], ascending=[False, False], kind="stable", ignore_index=True)


def conversions(kernels: pd.DataFrame) -> pd.DataFrame:
    """Per conversion, longest first: duration_ns, instances, and share of all kernel time."""
    summed = kernels.groupby("conversion", as_index=False)[["duration_ns", "instances"]].sum()
    summed["share"] = summed["duration_ns"] / kernels["duration_ns"].sum()
    return summed.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def asked(precision: str) -> tuple[str, ...]:
    """The formats that the matrix products of a number format are to run in; none where no plug-in has it."""
    described = registry.precisions().get(precision)
    return (described.computes, *described.computes_too) if described else ()


def wanted(precision: str) -> tuple[str, ...]:
    """`asked`. Raises UserError for a number format that no plug-in describes."""
    if not (dtypes := asked(precision)):
        described = ", ".join(sorted(registry.precisions()))
        raise UserError(f"what {precision} is to compute in is not known; known: {described}")
    return dtypes


def share_as_asked(kernels: pd.DataFrame, precision: str) -> float | None:
    """Share of the time in matrix products that ran in the format asked for; None where there is no such time."""
    products = kernels[kernels["matrix"]]
    total = products["duration_ns"].sum()
    as_asked = products.loc[products["dtype"].isin(wanted(precision)), "duration_ns"].sum()
    return float(as_asked / total) if total else None


def otherwise(kernels: pd.DataFrame, precision: str) -> pd.DataFrame:
    """The matrix products that ran in another format, longest first: as `executed`, with `share` of their time."""
    products = kernels[kernels["matrix"]]
    share = products["duration_ns"] / products["duration_ns"].sum()
    other = products.assign(share=share)[~products["dtype"].isin(wanted(precision))]
    return other.sort_values("duration_ns", ascending=False, kind="stable", ignore_index=True)


def sentence(kernels: pd.DataFrame, precision: str) -> str:
    """`asked for fp8: 41.0 % of the time in matrix products ran in fp8, 59.0 % in fp16`."""
    products = by_dtype(kernels)
    products = products[products["matrix"]]
    if products.empty:
        return f"asked for {precision}: no kernel is known to be a matrix product"
    shares = dict(zip(products["dtype"], products["share"], strict=True))
    dtypes = wanted(precision)
    as_asked = sum(shares.pop(dtype, 0.0) for dtype in dtypes)
    parts = [f"{100 * as_asked:.1f} % of the time in matrix products ran in {' or '.join(dtypes)}"]
    parts += [f"{100 * share:.1f} % in {_worded(dtype)}" for dtype, share in shares.items() if dtype != NOT_TOLD]
    if NOT_TOLD in shares:
        parts.append(f"of {100 * shares[NOT_TOLD]:.1f} % nothing tells the format")
    return f"asked for {precision}: {', '.join(parts)}"


def _worded(dtype: str) -> str:
    return f"{dtype} (nothing tells which)" if dtype == EITHER_FP8 else dtype


def render(kernels: pd.DataFrame, precision: str, layers: Sequence[Layer] = ()) -> str:
    """The sentence, the products that ran otherwise, what conversions cost, and remarks, a line each."""
    lines = [f"{sentence(kernels, precision)}."]
    for row in rows_of(otherwise(kernels, precision).head(SHOWN)):
        where = row.get("layer")
        owner = f" of {where}" if isinstance(where, str) else ""
        lines.append(f"  {100 * row['share']:5.1f} %  {row['dtype']}: {row['kernel']}{owner}")
    for row in rows_of(conversions(kernels)):
        lines.append(
            f"{row['conversion']}: {row['duration_ns']:.0f} ns, {100 * row['share']:.1f} % of all kernel time"
        )
    return "\n".join([*lines, *remarks(kernels, layers)])


def remarks(kernels: pd.DataFrame, layers: Sequence[Layer]) -> list[str]:
    """What keeps formats from being told, and what to do, a line each. kernels: as `executed`; layers: described."""
    by_name = {layer.name: layer for layer in layers}
    owners = kernels.get("layer", pd.Series(None, index=kernels.index, dtype="str"))
    alone = owners[owners == kernels["kernel"]]
    regions = alone[[is_region(by_name.get(name, Layer(name))) for name in alone]]
    lines = []
    if len(regions):
        share = kernels.loc[regions.index, "duration_ns"].sum() / kernels["duration_ns"].sum()
        lines.append(
            f"{100 * share:.1f} % of the time is in fused regions, such as {regions.iloc[0]}: nothing tells what ran "
            f"inside; {DETAILED}, or trace the kernels (nsys, trt_nodes)"
        )
    if len(alone) and all(by_name.get(name, Layer(name)).kind is None for name in alone):
        lines.append(f"of the layers only names are known: {DETAILED}")
    return lines


def sparsity(kernels: pd.DataFrame, layers: Sequence[Layer]) -> Sparsity:
    """What ran on sparse weights: layers that say so, and kernels and tactics that are called sparse."""
    names = {layer.name for layer in layers if layer.sparse or "sparse" in (layer.tactic or "")}
    owner = kernels.get("layer", pd.Series(None, index=kernels.index, dtype="str"))
    sparse = owner.isin(names) | kernels["kernel"].str.contains("sparse", regex=False)
    duration, total = int(kernels.loc[sparse, "duration_ns"].sum()), int(kernels["duration_ns"].sum())
    sparse_layers = names | set(owner[sparse].dropna())
    return Sparsity(tuple(sorted(sparse_layers)), duration, duration / total if total else 0.0)
