"""The blocks of llama_blocks divided over the ranks of torch.distributed.

tensor: each rank has some of the heads and some columns of the MLP; the partial results are added up behind both, two
all-reduces a block (Megatron-LM, arXiv:1909.08053). sequence: the same, and what lies between two products is divided
by tokens: an all-gather before and a reduce-scatter behind each (arXiv:2205.05198). pipeline: each rank has some of
the blocks, and the batch goes through in parts (GPipe, arXiv:1811.06965).
"""

from collections.abc import Callable

import torch
from torch import distributed, nn

ALL_GATHER = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
REDUCE_SCATTER = getattr(distributed, "reduce_scatter_single", None) or distributed.reduce_scatter_tensor
"""The first names are of torch 2.13 on, which warns of the second."""
PARTS = 2
"""Parts of the batch in a pipeline, per rank, as far as the batch has as many."""


def divided(model: nn.Module, kind: str) -> nn.Module:
    """The part of this rank. Raises ValueError where the model can't be divided by their number."""
    rank, size = distributed.get_rank(), distributed.get_world_size()
    if kind == "pipeline":
        return Stage(model, rank, size)
    for layer in dict.fromkeys(model.layers):  # blocks may have one's weights
        _divide(layer, rank, size)
        layer.attention.forward = _added(layer.attention.forward, kind)
        layer.mlp.forward = _added(layer.mlp.forward, kind)
    return model if kind == "tensor" else Sequence(model, rank, size)


def _divide(layer: nn.Module, rank: int, size: int) -> None:
    """Keep this rank's heads, and its columns of the MLP."""
    attention, mlp = layer.attention, layer.mlp
    for what, count in (
        ("heads", attention.heads),
        ("key_value_heads", attention.key_value_heads),
        ("columns of the MLP", mlp.up.out_features),
    ):
        if count % size:
            raise ValueError(f"{count} {what} can't be divided by {size}")
    attention.heads //= size
    attention.key_value_heads //= size
    for linear in (attention.q, attention.k, attention.v, mlp.gate, mlp.up):
        linear.weight = nn.Parameter(linear.weight.detach().chunk(size, 0)[rank].clone())
    for linear in (attention.out, mlp.down):
        linear.weight = nn.Parameter(linear.weight.detach().chunk(size, 1)[rank].clone())


def _added(forward: Callable[..., torch.Tensor], kind: str) -> Callable[..., torch.Tensor]:
    """A part of a block whose result is the sum over the ranks; with `sequence` from and to this rank's tokens."""

    def whole(x: torch.Tensor, *rotation: torch.Tensor) -> torch.Tensor:
        y = forward(x, *rotation)
        distributed.all_reduce(y)
        return y

    def of_tokens(x: torch.Tensor, *rotation: torch.Tensor) -> torch.Tensor:
        return scattered(forward(gathered(x), *rotation))

    return whole if kind == "tensor" else of_tokens


def gathered(x: torch.Tensor) -> torch.Tensor:
    """[b, s / ranks, width] of each rank → [b, s, width] on all."""
    size = distributed.get_world_size()
    every = x.new_empty((size * x.shape[0], *x.shape[1:]))
    ALL_GATHER(every, x.contiguous())
    return every.unflatten(0, (size, -1)).transpose(0, 1).flatten(1, 2)


def scattered(x: torch.Tensor) -> torch.Tensor:
    """[b, s, width] on all ranks → of their sum this rank's [b, s / ranks, width]."""
    size = distributed.get_world_size()
    parts = x.unflatten(1, (size, -1)).transpose(0, 1).contiguous()
    own = torch.empty_like(parts[0])
    REDUCE_SCATTER(own, parts.flatten(0, 1))
    return own


class Sequence(nn.Module):
    """A stack whose hidden states are divided by tokens between the products."""

    def __init__(self, model: nn.Module, rank: int, size: int) -> None:
        super().__init__()
        self.model, self.rank, self.size = model, rank, size

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[b, s, width] → the same, on every rank."""
        count = hidden.shape[1]
        if count % self.size:
            raise ValueError(f"{count} tokens can't be divided by {self.size}")
        cos, sin = self.model.cos[:count], self.model.sin[:count]
        own = hidden.chunk(self.size, 1)[self.rank]
        for layer in self.model.layers:
            own = layer(own, cos, sin)
        return gathered(own)


class Stage(nn.Module):
    """Some of the blocks; the last rank's results go to rank 0 at the end."""

    def __init__(self, model: nn.Module, rank: int, size: int) -> None:
        super().__init__()
        if (count := len(model.layers)) % size:
            raise ValueError(f"{count} blocks can't be divided by {size}")
        share = count // size
        self.layers = model.layers[rank * share : (rank + 1) * share]
        self.rank, self.size = rank, size
        for name in ("cos", "sin"):
            self.register_buffer(name, getattr(model, name), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[b, s, width] → on rank 0 the result of all stages; elsewhere what this one has made."""
        cos, sin = self.cos[: hidden.shape[1]], self.sin[: hidden.shape[1]]
        last = self.rank == self.size - 1
        made, sent = [], []
        for part in hidden.chunk(min(hidden.shape[0], PARTS * self.size)):
            part = part.contiguous() if self.rank == 0 else self._received(torch.empty_like(part), self.rank - 1)
            for layer in self.layers:
                part = layer(part, cos, sin)
            if not last:
                sent.append(distributed.isend(part, self.rank + 1))
            made.append(part)
        for work in sent:
            work.wait()
        result = torch.cat(made)
        if self.size > 1 and last:
            distributed.send(result, 0)
        return self._received(result, self.size - 1) if self.rank == 0 < self.size - 1 else result

    def _received(self, into: torch.Tensor, sender: int) -> torch.Tensor:
        distributed.recv(into, sender)
        return into
