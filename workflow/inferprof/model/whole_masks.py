"""Attention masks of transformers by the inputs' shapes alone: for models here and programs of `snakemake best`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def register_whole_masks() -> None:
    """Replace transformers' attention masks by ones that depend on the inputs' shapes alone.

    Its own look at the mask's values and leave it out where nothing is masked: a wait for the GPU in each call, which
    a CUDA graph can't hold, and a time that depends on the data. While traced or captured they do the opposite, and
    build a mask of zeros also for models without one, which fused attention does not take.
    https://huggingface.co/docs/transformers/attention_interface
    """
    import transformers
    from transformers.masking_utils import eager_mask, sdpa_mask

    def whole(make: Callable[..., Any]) -> Callable[..., Any]:
        def mask(**options: Any) -> Any:
            everywhere = options.get("allow_is_bidirectional_skip") and options.get("local_size") is None
            if everywhere and options.get("attention_mask") is None:
                return None  # the model got none and attends everywhere
            return make(**options | {"allow_is_bidirectional_skip": False})

        return mask

    for name, make in (("eager", eager_mask), ("sdpa", sdpa_mask)):
        transformers.AttentionMaskInterface.register(name, whole(make))
