"""Linear layers of a 7B language model's width behind each other: the products of a decoder and nothing else."""

import numpy as np
import torch
from torch import nn

WIDTH, DEPTH = 4096, 8
"""Eight layers: 268 MB of weights in 16 bits and 67 MB in 4, neither of which an L2 cache of 50 MB holds."""
LEVELS, GROUP = 16, 128
STEP = 2.0**-8
"""Between two levels. A layer then scales a random vector by 1.15: 4.61 levels · 2^-8 · √4096."""


def square() -> nn.Module:
    """x [tokens, 4096] → [tokens, 4096], without biases; the same weights each time."""
    stream = np.random.RandomState(0)
    return nn.Sequential(*(_linear(stream) for _ in range(DEPTH)))


def _linear(stream: np.random.RandomState) -> nn.Linear:
    """A layer whose weights are on 16 evenly spaced levels around 0, so that 4 bits hold them without loss.

    Each group of 128 along the input has both outermost levels, by which a quantizer finds the scale.
    """
    levels = stream.randint(0, LEVELS, (WIDTH, WIDTH // GROUP, GROUP), dtype=np.uint8)
    levels[:, :, 0], levels[:, :, 1] = 0, LEVELS - 1
    linear = nn.Linear(WIDTH, WIDTH, bias=False)
    weights = torch.from_numpy(levels).reshape(WIDTH, WIDTH).float() - (LEVELS - 1) / 2
    linear.weight = nn.Parameter(weights * STEP)
    return linear
