"""One case trained in PyTorch: torch.compile, bf16 autocast, fused AdamW; JSON on stdout.

    python -m experiments.baselines.torch_step --model gpt2-124m --batch 32 --sequence 1024

The same work as a case of `experiments.gpu`: float32 parameters and optimizer state, products in
bf16, gradients clipped, one repeated batch of random tokens, windows of steps ended by one wait.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch

from experiments.baselines.torch_model import Transformer
from experiments.gpu.cases import TINY_GPT, TRAIN
from scaling.models.config import ModelConfig, with_positions
from scaling.models.presets import preset

WARM_UP, WINDOWS = 3, 5  # steps; windows, as experiments.gpu.timing.THOROUGH
STEPS = {"cuda": 20, "cpu": 2}  # of a window


def main(arguments: list[str] | None = None) -> None:
    """Train, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a preset of GPT-2 or Llama shape")
    parser.add_argument("--batch", type=int, required=True, help="sequences")
    parser.add_argument("--sequence", type=int, required=True, help="tokens of each")
    args = parser.parse_args(arguments)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    step, parameters = training_step(model_of(args.model, args.sequence), args, device)
    losses = [float(step()) for _ in range(WARM_UP)]
    windows = []
    for _ in range(WINDOWS):
        start = time.perf_counter()
        for _ in range(STEPS[device]):
            loss = step()
        losses.append(float(loss))  # waits
        windows.append(time.perf_counter() - start)
    each = sorted(seconds / STEPS[device] for seconds in windows)
    median = each[len(each) // 2]
    document = {
        "side": "torch",
        "parameters": parameters,
        "tokens_per_second": args.batch * args.sequence / median,
        "step_time": {"median": median, "window_seconds": windows, "steps": STEPS[device]},
        "loss": {"first": losses[0], "last": losses[-1]},
        "peak_memory": torch.cuda.max_memory_allocated() if device == "cuda" else None,
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda},
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    print(json.dumps(document))


def training_step(
    config: ModelConfig, args: argparse.Namespace, device: str
) -> tuple[Callable[[], torch.Tensor], int]:
    """A function that does one step and returns its loss; and the number of parameters."""
    model = Transformer(config).to(device)
    parameters = sum(p.numel() for p in model.parameters())
    run = torch.compile(model) if device == "cuda" else model
    rate = TRAIN.learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), rate, fused=device == "cuda")
    tokens = torch.randint(config.vocab_size, (args.batch, args.sequence + 1), device=device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16):
            loss = run(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step, parameters


def model_of(name: str, sequence: int) -> ModelConfig:
    """A preset, or the toy `tiny-gpt`."""
    return with_positions(TINY_GPT if name == "tiny-gpt" else preset(name), sequence)


if __name__ == "__main__":
    main()
