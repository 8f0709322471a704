"""The part `operation` of a record: what an inference of a model with a KV cache computes and moves."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from inferprof.documents.base import Count, Document


class Operation(Document):
    """`tokens` of each row are read behind `context` tokens that the cache holds: none is a prefill, one of them a
    decode step. Bytes and FLOPs are those of the whole batch; of tables that rows are looked up in there are none."""

    tokens: Annotated[int, Meta(ge=1, le=2**62)]
    context: Count
    weights_read: Count
    kv_read: Count
    kv_written: Count
    flops: Count | None = None
    not_counted: str | None = None
    """Why there are no FLOPs."""
