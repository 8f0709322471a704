"""Records as the code has them, out of as much of their content as a test is about."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from inferprof import documents
from inferprof.documents import Record
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


def plain(record: Record) -> dict[str, Any]:
    """Its content as mappings and lists, to be changed."""
    content: dict[str, Any] = msgspec.to_builtins(record)
    return content


def made(content: Mapping[str, Any]) -> Record:
    """The record of such a content; what it does not have is HEAD's."""
    record: Record = documents.decode(json.dumps({**HEAD, **content}).encode(), "record")
    return record
