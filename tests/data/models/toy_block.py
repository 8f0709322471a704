"""A transformer block small enough for every number format in a second; its head is no multiple of any block."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """A convolution, attention, a layer whose input is narrow, and a head whose input is 24 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 64, 8, 8)
        self.norm = nn.LayerNorm(64)
        self.qkv = nn.Linear(64, 192)
        self.out = nn.Linear(64, 64)
        self.narrow = nn.Linear(64, 24)
        self.head = nn.Linear(24, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[b, 3, 32, 32] → [b, 10]."""
        x = self.patch(image).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        weights = (q @ k.transpose(1, 2) / 8).softmax(dim=-1)
        x = x + self.out(weights @ v)
        return self.head(nn.functional.gelu(self.narrow(x)).mean(dim=1))


def make() -> nn.Module:
    """The factory that toy_block.yaml names."""
    return Block()
