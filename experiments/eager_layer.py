"""Seconds of PyTorch's host for one operation of a layer: the assumed `launch` of a software.

    .venv-parity/bin/python -m experiments.eager_layer       seconds; `make parity` makes that .venv

A layer with the operations of Megatron-LM (`scaling.analytic.kernels`, LAUNCHED) runs on arrays so
small that only the host counts: dispatch, autograd and, with remat, checkpoints. It launches no
kernels of a GPU, fuses nothing and does not communicate.

2026-11-22, AMD EPYC with 2 busy cores, torch 2.13.0, least of 150 runs, seconds of the process:

    without remat     311 us a layer, 5.5 us an operation (56)
    full remat        633 us a layer, 9.0 us an operation (70)
"""

import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, TOKENS, LAYERS, RUNS = 8, 2, 4, 8, 150
FORWARD, BACKWARD = 14, 42  # operations of a layer


class Layer(nn.Module):
    """A layer without flash attention, with biases and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x_SBD: torch.Tensor) -> torch.Tensor:
        """The layer's output, of the same shape."""
        length, batch, width = x_SBD.shape
        apart = lambda y: y.reshape(length, batch * HEADS, -1).transpose(0, 1)
        qkv = self.qkv(self.norms[0](x_SBD)).view(length, batch, HEADS, -1)
        q, k, v = map(apart, qkv.chunk(3, -1))
        scores = torch.empty(batch * HEADS, length, length)
        scores = torch.baddbmm(scores, q, k.transpose(1, 2), beta=0.0, alpha=0.5)
        values = torch.bmm(self.dropout(torch.softmax(scores, -1)), v)
        values = values.transpose(0, 1).contiguous().view(length, batch, width)
        x_SBD = x_SBD + self.dropout(self.out(values))
        hidden = nn.functional.gelu(self.up(self.norms[1](x_SBD)))
        return x_SBD + self.dropout(self.down(hidden))


def summed(parameter: nn.Parameter) -> None:
    """Add a parameter's gradient to a sum of its own as soon as it is there."""
    total = torch.zeros_like(parameter)

    def add(found: torch.Tensor) -> None:
        total.add_(found.grad)
        found.grad = None

    parameter.register_post_accumulate_grad_hook(add)


def seconds_of(layers: nn.ModuleList, remat: bool) -> float:
    """Seconds of the process for a layer, forward and backward; the least of all runs."""
    found = []
    for _ in range(RUNS):
        start = time.process_time()
        x_SBD = torch.ones(TOKENS, 1, WIDTH, requires_grad=True)
        for layer in layers:
            x_SBD = checkpoint(layer, x_SBD, use_reentrant=True) if remat else layer(x_SBD)
        x_SBD.sum().backward()
        found.append(time.process_time() - start)
    return min(found) / len(layers)


def main() -> None:
    """Print a line without and one with remat."""
    torch.set_num_threads(1)
    layers = nn.ModuleList(Layer() for _ in range(LAYERS))
    for parameter in layers.parameters():
        summed(parameter)
    for remat, passes in (("no remat", 1), ("full remat", 2)):
        count, seconds = passes * FORWARD + BACKWARD, seconds_of(layers, passes > 1)
        of_one = seconds / count
        print(f"{remat}: {seconds * 1e6:.0f} us a layer, {of_one * 1e6:.1f} us an operation")


if __name__ == "__main__":
    main()
