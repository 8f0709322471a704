"""A causal language model of transformers as a server runs it: prefill and decode on a KV cache of fixed size.

An inference writes the keys and values of its `p` tokens behind those of the `c` tokens before them, in place, and
gives the logits of the last: c = 0 is a prefill, p = 1 a decode step, anything else a chunk of a prefill. It leaves
the cache as it found it, so that each inference does the same. All rows of a batch have the same context, which the
model itself has read; each row has memory of its own for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Final

import torch
import transformers
from torch.nn.functional import scaled_dot_product_attention
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer

from inferprof.case import BATCH, CONTEXT, TOKENS, Shape
from inferprof.errors import UserError
from inferprof.model import data
from inferprof.model.model_spec import ModelSpec

ATTENTION: Final = "inferprof"
"""The name that transformers knows `attend` by."""
CONTEXT_SEED: Final = 2
CACHE_NAMES: Final = ("cache", "past_key_values")
"""What transformers calls the cache: 5.24 and 5.17. It ignores a name that it does not know."""


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """torch's attention, causal by the sizes alone. With a static cache transformers makes a mask in each step, and
    with a mask torch neither takes its fastest kernels nor shares keys among the heads of a group."""
    tokens, length = query.shape[2], key.shape[2]
    mask = None
    if 1 < tokens < length:
        mask = torch.ones(tokens, length, dtype=torch.bool, device=query.device).tril(length - tokens)
    causal = 1 < tokens == length
    mixed = scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scaling, enable_gqa=True
    )
    return mixed.transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register(ATTENTION, attend)


class FixedLayer(CacheLayerMixin):  # type: ignore[misc]  # transformers is untyped here
    """Keys and values [b, heads, c + p, head] of a layer, whose last p each inference writes anew."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, context: int) -> None:
        super().__init__()
        self.keys, self.values, self.context = keys, values, context
        self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Nothing is left to do."""

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write those of the new tokens, and give all."""
        self.keys[:, :, self.context :].copy_(key_states)
        self.values[:, :, self.context :].copy_(value_states)
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """Tokens before the new ones."""
        return self.context

    def get_max_length(self) -> int:
        """All that there is room for."""
        return int(self.keys.shape[2])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and first position of what is attended to."""
        return self.context + query_length, 0


def grown(keys: torch.Tensor, values: torch.Tensor) -> DynamicLayer:
    """A layer of transformers' own: an inference makes new tensors of these and of those of its tokens."""
    layer = DynamicLayer()
    layer.keys, layer.values, layer.is_initialized = keys, values, True
    return layer


class CausalLM(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
    """token ids [b, p] and the cache's tensors, keys and values of each layer in turns → logits [b, vocabulary].

    The tensors have room for the new tokens, or hold those before them alone: then the cache grows, as DynamicCache.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.grows = False
        self.model = model
        self.body, self.head, self.not_counted = _products(model)
        names = inspect.signature(model.forward).parameters
        self.cache_name = next(name for name in CACHE_NAMES if name in names)

    def forward(self, ids: torch.Tensor, *cache: torch.Tensor) -> torch.Tensor:
        """The logits behind the last token."""
        context = cache[0].shape[2] - (0 if self.grows else ids.shape[1])
        pairs = zip(cache[::2], cache[1::2], strict=True)
        layers = [grown(*pair) if self.grows else FixedLayer(*pair, context) for pair in pairs]
        return self.logits(ids, Cache(layers=layers), context)

    def logits(self, ids: torch.Tensor, cache: Cache, context: int) -> torch.Tensor:
        """The same with a cache of transformers."""
        positions = torch.arange(context, context + ids.shape[1], device=ids.device)[None]
        held = {self.cache_name: cache}
        result = self.model(input_ids=ids, position_ids=positions, use_cache=True, logits_to_keep=1, **held)
        return result.logits[:, -1]

    def read(self, ids: torch.Tensor) -> DynamicCache:
        """What the model keeps of some tokens."""
        cache = DynamicCache()
        self.logits(ids, cache, 0)
        return cache


def load(model: Any, spec: ModelSpec) -> CausalLM:
    """A model of transformers with a cache. Raises UserError for one that a cache of full length is wrong for."""
    config = model.config
    kinds = {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}
    if kinds or getattr(config, "sliding_window", None) or getattr(config, "attn_logit_softcapping", None):
        what = ", ".join(sorted(kinds)) or "a sliding window or soft-capped logits"
        raise UserError(f"{spec.path}: kv_cache: its layers have {what}; only full attention is served")
    return CausalLM(model)


def expected(module: CausalLM, spec: ModelSpec, shape: Shape, ids: torch.Tensor) -> torch.Tensor:
    """The logits by transformers' own cache, mask and attention, which it was loaded with."""
    cache = DynamicCache()
    if context := _context(shape):
        cache = module.read(_context_ids(spec, context).to(ids.device))
        cache.batch_repeat_interleave(shape.batch)
    return module.logits(ids, cache, context)


class Step(torch.nn.Module):  # type: ignore[misc]
    """An inference at a shape: token ids [b, p] → logits, with a cache of its own behind a shared model."""

    def __init__(self, module: torch.nn.Module, spec: ModelSpec, shape: Shape, *, grows: bool = False) -> None:
        """module: has a CausalLM in it, perhaps cast or quantized. All steps of one model in a process have one kind
        of cache."""
        super().__init__()
        self.module = module
        self.lm = next(part for part in module.modules() if isinstance(part, CausalLM))
        self.lm.grows = grows
        self.batch, self.tokens, self.context = shape.batch, shape.as_dict().get(TOKENS, 1), _context(shape)
        device = next(module.parameters()).device
        with torch.inference_mode():
            read = self.lm.read(_context_ids(spec, max(1, self.context)).to(device))
        self.names: list[str] = []
        for layer in read.layers:
            for tensor in (layer.keys, layer.values):
                self.names.append(f"cache{len(self.names)}")
                self.register_buffer(self.names[-1], self._room_for(tensor), persistent=False)

    def _room_for(self, tensor: torch.Tensor) -> torch.Tensor:
        """[1, heads, c, head] → the same in each row, with room for the new tokens."""
        _, heads, _, head = tensor.shape
        length = self.context + (0 if self.lm.grows else self.tokens)
        held = torch.zeros((self.batch, heads, length, head), dtype=tensor.dtype, device=tensor.device)
        held[:, :, : self.context] = tensor[:, :, : self.context]
        return held

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits behind the last token."""
        return self.module(ids, *(getattr(self, name) for name in self.names))

    def operation(self, weights: int) -> dict[str, Any]:
        """documents.record.Operation; `weights` are the bytes of all weights, as they are held."""
        cache = [getattr(self, name) for name in self.names]
        per_token = sum(tensor.element_size() * self.batch * tensor.shape[1] * tensor.shape[-1] for tensor in cache)
        pairs = self.tokens * self.context + self.tokens * (self.tokens + 1) // 2
        per_pair = 2 * self.lm.model.config.num_attention_heads * sum(tensor.shape[-1] for tensor in cache)
        flops = self.batch * (2 * self.tokens * self.lm.body + 2 * self.lm.head + per_pair * pairs)
        return {
            "tokens": self.tokens,
            "context": self.context,
            "weights_read": weights - _only_looked_up(self.lm.model),
            "kv_read": per_token * self.context,
            "kv_written": per_token * self.tokens,
            "flops": None if self.lm.not_counted else flops,
            "not_counted": self.lm.not_counted,
        }


def _context(shape: Shape) -> int:
    return shape.as_dict().get(CONTEXT, 0)


def _context_ids(spec: ModelSpec, count: int) -> torch.Tensor:
    """[1, count]: made as the model's input is, with a seed of its own."""
    ids = data.feeds(spec, Shape(((BATCH, 1), (TOKENS, count))), 1, CONTEXT_SEED)[0][spec.inputs[0].name]
    return torch.from_numpy(ids)


def _products(model: Any) -> tuple[int, int, str | None]:
    """Weights that each token is multiplied with, those that only the last token of a row is, and why they are not
    all."""
    head = model.get_output_embeddings().weight
    looked_up = _tables(model)
    matrices = [p for p in model.parameters() if p.ndim > 1 and p is not head and id(p) not in looked_up]
    experts = any(matrix.ndim > 2 for matrix in matrices)  # stacked, of which a token takes a few
    return sum(p.numel() for p in matrices), head.numel(), "it has experts" if experts else None


def _tables(model: Any) -> dict[int, torch.Tensor]:
    """The weights of embeddings."""
    parts: Sequence[torch.nn.Module] = [part for part in model.modules() if isinstance(part, torch.nn.Embedding)]
    return {id(part.weight): part.weight for part in parts}


def _only_looked_up(model: Any) -> int:
    """Bytes of embeddings of which a step reads no more than some rows: one that is the head too is read whole."""
    head = model.get_output_embeddings().weight
    return sum(weight.nbytes for weight in _tables(model).values() if weight is not head)
