"""A vision transformer whose sizes, but for the number of classes, are multiples of 16: what block formats want."""

import torch
from torch import nn

WIDTH, DEPTH, HEADS, MLP = 768, 12, 12, 3072
SIDE, PATCH, LABELS = 256, 16, 1000
TOKENS = (SIDE // PATCH) ** 2
"""256, where ViT-B/16 has 197: an image of 256 pixels, and the mean of all tokens in place of a class token."""


class Attention(nn.Module):
    """Self-attention [b, tokens, width]; batch and heads are folded, so that its products have three dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attend to all tokens."""
        q, k, v = (self._fold(part(x)) for part in (self.q, self.k, self.v))
        weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)) * (WIDTH // HEADS) ** -0.5, dim=-1)
        heads = torch.bmm(weights, v).reshape(-1, HEADS, TOKENS, WIDTH // HEADS)
        return self.out(heads.transpose(1, 2).reshape(-1, TOKENS, WIDTH))

    @staticmethod
    def _fold(x: torch.Tensor) -> torch.Tensor:
        """[b, tokens, width] → [b x heads, tokens, width / heads]."""
        return x.reshape(-1, TOKENS, HEADS, WIDTH // HEADS).transpose(1, 2).reshape(-1, TOKENS, WIDTH // HEADS)


class Block(nn.Module):
    """One layer of the encoder, normalised before each part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.fc1, self.fc2 = nn.Linear(WIDTH, MLP), nn.Linear(MLP, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[b, tokens, width] → the same."""
        x = x + self.attention(self.norm1(x))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """The whole network: image in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.positions = nn.Parameter(torch.zeros(1, TOKENS, WIDTH))
        self.layers = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(WIDTH)
        self.classifier = nn.Linear(WIDTH, LABELS)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """[b, 3, 256, 256] → [b, 1000]."""
        tokens = self.patches(pixel_values).flatten(2).transpose(1, 2) + self.positions
        return self.classifier(self.norm(self.layers(tokens)).mean(dim=1))


def base() -> nn.Module:
    """The size of ViT-B."""
    return VisionTransformer()
