"""Runs in every host of a testbed: what leaves and enters it in one collective of each kind."""

import json
import sys
from pathlib import Path

import jax
import numpy as np
from jax.experimental.multihost_utils import sync_global_devices

from experiments.gloo.messages import KINDS
from experiments.testbed_case import Point, case
from scaling.calibration.timing import compiled, over_all
from scaling.training.launch.distributed import start_distributed

COUNTERS = Path("/sys/class/net/eth0/statistics")
TIMES = 8


def counted() -> list[int]:
    return [int((COUNTERS / name).read_text()) for name in ("tx_bytes", "rx_bytes")]


def counted_while_all_wait() -> list[int]:
    """Nobody sends before everybody has read: a fast host's first bytes would count as earlier."""
    sync_global_devices("done")
    found = counted()
    sync_global_devices("read")
    return found


def main(hosts: int, devices: int, size: int) -> None:
    start_distributed()
    for kind in KINDS:
        made = case(Point(kind, "all", hosts, devices, 1.0, size, TIMES))
        program = compiled(made, TIMES)
        sharding = jax.NamedSharding(made.mesh, over_all(made.mesh))
        zeros = np.zeros(made.mesh.size * made.shapes[0][0], np.float32)
        values = jax.make_array_from_callback(zeros.shape, sharding, zeros.__getitem__)
        jax.block_until_ready(program(values))
        before = counted_while_all_wait()
        jax.block_until_ready(program(values))
        after = counted_while_all_wait()
        moved = [(late - early) / TIMES for early, late in zip(before, after, strict=True)]
        print(json.dumps([kind, jax.process_index(), *moved]))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
