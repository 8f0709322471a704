"""ViT-B/16 in plain torch: what transformers' ViTForImageClassification computes, without the time to load that."""

import torch
from torch import nn
from torch.nn import functional

WIDTH, HEADS, DEPTH, CLASSES = 768, 12, 12, 1000
IMAGE, PATCH = 224, 16


class Block(nn.Module):
    """One layer of the encoder, normalised before each part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[b, tokens, width] → the same."""
        q, k, v = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Encoder(nn.Module):
    """Pixels [b, 3, 224, 224] → logits [b, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, stride=PATCH)
        self.first = nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(0.02 * torch.randn(1, (IMAGE // PATCH) ** 2 + 1, WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """The logits of the class token."""
        patches = self.patches(pixel_values).flatten(2).transpose(1, 2)
        first = self.first.expand(len(pixel_values), -1, -1)
        x = self.blocks(torch.cat((first, patches), 1) + self.places)
        return self.head(self.norm(x[:, 0]))


def base() -> nn.Module:
    """With seeded random weights."""
    torch.manual_seed(0)
    return Encoder()
