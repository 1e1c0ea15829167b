"""Makes the dumps of this folder: one step of a two-layer MLP on data=4, model=2 of eight H100.

    XLA_FLAGS='--xla_dump_to=DIR --xla_dump_hlo_as_text' python make.py TARGET

In an environment of the jax that is to write them, with its CUDA plugin; TARGET is a file with
what `scaling.meshes.xla_target.xla_target_text` returns (for jax 0.5 without `runtime_version`).
Kept are the module after optimizations, its memory report, and of the module before its first line
and the arguments; paths are shortened.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


def loss(weights, x):
    hidden = jnp.tanh(x @ weights["up"])
    return jnp.square(hidden @ weights["down"]).sum()


def step(weights, x):
    return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights, x))


def main(target: str) -> None:
    place = topologies.get_topology_desc(platform="cuda", target_config=target, topology="1x1x8")
    mesh = Mesh(np.array(place.devices).reshape(4, 2), ("data", "model"))

    def array(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    weights = {"up": array((64, 128), None, "model"), "down": array((128, 64), "model", None)}
    lowered = jax.jit(step, donate_argnums=0).lower(weights, array((512, 64), "data"))
    lowered.compile(compiler_options={"xla_gpu_autotune_level": 0})


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        main(file.read())
