"""Blocks of a Llama: RMSNorm, rotary positions, grouped-query attention and a SwiGLU MLP, hidden states in and out.

Batch and sequence are free: [b, 1, width] is a decoding step without its key-value cache, [1, s, width] a prefill.
The weights are seeded normal numbers of variance 1 / fan-in, a few drawn and repeated: to draw all of a real block's
would take longer than to measure it, and what a matrix product costs does not depend on which ones they are.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional

SEED = 0
DRAWN = 1_048_573
"""How many numbers are drawn: a prime, so that no two rows of a matrix are alike."""
POSITIONS = 2048
THETA = 500_000.0
"""Base of the rotary frequencies, as in Llama 3."""


@dataclass(frozen=True)
class Size:
    """The sizes of a stack of blocks."""

    width: int
    mlp: int
    heads: int
    key_value_heads: int
    blocks: int
    alike: bool = False
    """All have the first one's weights: where no cache holds a block that takes as long, and it loads sooner."""


class Attention(nn.Module):
    """Causal self-attention [b, s, width] whose heads share keys and values in groups."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.key_value_heads = size.heads, size.key_value_heads
        self.head = size.width // size.heads
        self.q = nn.Linear(size.width, size.heads * self.head, bias=False)
        self.k = nn.Linear(size.width, size.key_value_heads * self.head, bias=False)
        self.v = nn.Linear(size.width, size.key_value_heads * self.head, bias=False)
        self.out = nn.Linear(size.heads * self.head, size.width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Attend to oneself and to what came before."""
        q = self._split(self.q(x), self.heads)
        k, v = (self._split(part(x), self.key_value_heads) for part in (self.k, self.v))
        mixed = functional.scaled_dot_product_attention(
            rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """[b, s, heads · head] → [b, heads, s, head]."""
        return x.unflatten(2, (heads, self.head)).transpose(1, 2)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding [b, heads, s, head]; plane i is spanned by number i of either half, as in Llama."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.gate = nn.Linear(size.width, size.mlp, bias=False)
        self.up = nn.Linear(size.width, size.mlp, bias=False)
        self.down = nn.Linear(size.mlp, size.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[b, s, width] → the same."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer of the decoder, normalised before each part."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.norm1, self.norm2 = (nn.RMSNorm(size.width, eps=1e-5) for _ in range(2))
        self.attention, self.mlp = Attention(size), Mlp(size)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """[b, s, width] → the same."""
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Blocks(nn.Module):
    """The stack, behind hidden states [b, s, width]; without numbers in it as long as `stack` has not filled it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        blocks = [Block(size) for _ in range(1 if size.alike else size.blocks)]
        self.layers = nn.ModuleList(blocks[number % len(blocks)] for number in range(size.blocks))
        for name in ("cos", "sin"):
            self.register_buffer(name, torch.empty(POSITIONS, size.width // size.heads), persistent=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[b, s, width] → the same."""
        cos, sin = self.cos[: hidden.shape[1]], self.sin[: hidden.shape[1]]
        for layer in self.layers:
            hidden = layer(hidden, cos, sin)
        return hidden


def stack(size: Size) -> nn.Module:
    """The model with its weights. Its parts are made without memory first: torch would draw numbers for all of it."""
    with torch.device("meta"):
        model = Blocks(size)
    model = model.to_empty(device="cpu")
    angles = rotations(size.width // size.heads)
    model.cos.copy_(angles.cos())
    model.sin.copy_(angles.sin())
    drawn = np.random.RandomState(SEED).standard_normal(DRAWN).astype(np.float32)
    start = 0
    for parameter in model.parameters():
        flat = parameter.detach().numpy().reshape(-1)
        if parameter.ndim == 1:
            flat[:] = 1.0
            continue
        numbers = np.roll(drawn, -start) * np.float32(parameter.shape[1] ** -0.5)
        for begin in range(
            0, flat.size, DRAWN
        ):  # NumPy: threads of torch in each of several ranks are in each others way
            flat[begin : begin + DRAWN] = numbers[: flat.size - begin]
        start = (start + flat.size) % DRAWN
    return model


def rotations(head: int) -> torch.Tensor:
    """The angles [POSITIONS, head] by which each plane of a head is turned, the same for both halves of it."""
    frequencies = THETA ** (-torch.arange(0, head, 2, dtype=torch.float32) / head)
    return torch.outer(torch.arange(POSITIONS, dtype=torch.float32), frequencies.repeat(2))


def llama_block() -> nn.Module:
    """One block of Llama 3 8B: 218 M weights, several times what the L2 cache of any GPU holds."""
    return stack(Size(width=4096, mlp=14336, heads=32, key_value_heads=8, blocks=1))


def four() -> nn.Module:
    """Four blocks of Llama 3 8B, for several GPUs: enough for the stages of a pipeline."""
    return stack(Size(width=4096, mlp=14336, heads=32, key_value_heads=8, blocks=4, alike=True))


def tiny() -> nn.Module:
    """Two blocks for a CPU."""
    return stack(Size(width=64, mlp=160, heads=4, key_value_heads=2, blocks=2))
