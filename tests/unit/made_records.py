"""Records and other documents as the code has them, out of as much of their content as a test is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from inferprof import documents
from inferprof.documents import Record
from inferprof.documents.graph import Node
from inferprof.tables.records import CASE_KEY

HEAD: Mapping[str, Any] = {
    "schema": 1,
    "case": dict.fromkeys(CASE_KEY, "x"),
    "round": 0,
    "machine": "box",
    "status": "ok",
    "boundaries": {},
    "environment": {},
    "protocol": {},
    "started": "2026-01-01T00:00:00+00:00",
}
CURVE: Mapping[str, Any] = {"gb_per_s": 1.0, "latency_ns": 0.0, "by_size": {}}
LINK: Mapping[str, Any] = {"pageable": CURVE, "pinned": CURVE}
SIZES: Mapping[str, Any] = {"inputs": 0, "outputs": 0, "weights": 0}
NOT_ASKED: Mapping[str, Any] = {"not_measured": "not asked"}
LEAST: Mapping[documents.Kind, Mapping[str, Any]] = {
    "record": HEAD,
    "bandwidth": {"method": "made up", "h2d": LINK, "d2h": LINK, "d2d": CURVE},
    "ceilings": {"gemm": {}, "memory": {}},
    "cost": {**SIZES, "nodes": []},
    "partition": {"by": "x", "dynamic": NOT_ASKED, "static": NOT_ASKED, "looped": None},
}
NODE: Mapping[str, Any] = {
    **{"name": "n", "op": "MatMul", "dtype": "float16", "product": True},
    **{"flops": 0, "read": 0, "written": 0, "weights": 0},
}


def plain(record: Record) -> dict[str, Any]:
    """Its content as mappings and lists, to be changed."""
    content: dict[str, Any] = msgspec.to_builtins(record)
    return content


def made(content: Mapping[str, Any]) -> Record:
    """The record of such a content; what it does not have is HEAD's."""
    record: Record = document("record", content)
    return record


def document(kind: documents.Kind, content: Mapping[str, Any]) -> Any:
    """A document of such a content; what it does not have is LEAST's."""
    return documents.decode(json.dumps({**LEAST.get(kind, {}), **content}).encode(), kind)


def node(**content: Any) -> Node:
    """A node of a .cost.json, a product unless that is given."""
    return msgspec.convert({**NODE, **content}, Node)
