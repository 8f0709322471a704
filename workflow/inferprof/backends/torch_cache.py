"""Torch models with a KV cache: the session of a shape has a cache of its own, behind weights that all share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from inferprof.backends import torch_graphs, torch_options
from inferprof.errors import UserError
from inferprof.plugins import OpenRequest, Session

if TYPE_CHECKING:
    import torch


def stepped(module: torch.nn.Module, request: OpenRequest) -> torch.nn.Module:
    """A module with a cache of the request's shape; one that has none as it is. Raises UserError for `graphs`."""
    if not request.spec.kv_cache:
        return module
    if torch_graphs.COUNT in request.variant.options:
        raise UserError(
            f"variant {request.variant.name}: {torch_graphs.COUNT}: a KV cache has one batch size; leave it out"
        )
    from inferprof.model import causal_lm

    grows = torch_options.KV_CACHE.given(request.variant) == "dynamic"
    return causal_lm.Step(module, request.spec, request.shape, grows=grows)


def operation(module: torch.nn.Module, weights: int) -> dict[str, Any] | None:
    """The part `operation` of the record; None of a model without a cache."""
    describe = getattr(module, "operation", None)
    return describe(weights) if describe else None


def operation_of(session: Session) -> dict[str, Any] | None:
    """The same of a torch backend's session."""
    part: dict[str, Any] | None = getattr(session, "operation", None)
    return part
