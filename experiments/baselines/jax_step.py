"""One case trained by this project's step; a JSON document like that of `torch_step`.

python -m experiments.baselines.jax_step --model gpt2-124m --batch 32 --sequence 1024
"""

import argparse
import json
import sys

import jax

from experiments.gpu.cases import TINY_GPT, TRAIN
from experiments.gpu.machine import versions
from experiments.gpu.measure import measure
from experiments.gpu.timing import QUICK, THOROUGH
from scaling.meshes.shape import MeshShape
from scaling.models.accounting import count_parameters
from scaling.models.config import with_positions
from scaling.models.presets import preset
from scaling.run import Batch, Run


def main(arguments: list[str] | None = None) -> None:
    """Train, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", required=True, help="a preset, or tiny-gpt")
    parser.add_argument("--batch", type=int, required=True, help="sequences")
    parser.add_argument("--sequence", type=int, required=True, help="tokens of each")
    parser.add_argument("--remat", default="none", help="none, selective or full")
    args = parser.parse_args(arguments)
    model = with_positions(
        TINY_GPT if args.model == "tiny-gpt" else preset(args.model), args.sequence
    )
    run = Run(
        name=args.model,
        model=model,
        batch=Batch(args.batch, args.sequence),
        mesh=MeshShape(),
        remat=args.remat,
        train=TRAIN,
    )
    devices = jax.local_devices()[:1]
    effort = THOROUGH if devices[0].platform == "gpu" else QUICK
    found = measure(run, devices, effort)
    document = {
        "side": "jax",
        "parameters": count_parameters(model).total,
        **{key: found[key] for key in ("tokens_per_second", "step_time", "loss", "attention")},
        "peak_memory": found["memory"]["peak_in_use"],
        "versions": versions(),
        "device": devices[0].device_kind,
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
