"""Prints the optimised HLO of a function with one collective of each kind, as this jax has it:

JAX_PLATFORMS=cpu python tests/scaling/hlo/golden/collectives.py gpu > .../jax-0.10-gpu.hlo
JAX_PLATFORMS=cpu python tests/scaling/hlo/golden/collectives.py cpu > .../jax-0.10-cpu.hlo
"""

import sys
from functools import partial

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.compile.options import compiler_options
from scaling.meshes import catalog
from scaling.meshes.devices import absent_mesh, host_mesh
from scaling.meshes.shape import parse_mesh

MESH = "data=2,fsdp=2,tensor=2"
OVER_ALL = P(("data", "fsdp", "tensor"))


def one_of_each(x_AB: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Between the collectives stands arithmetic, so that none joins its neighbour; beside the last
    one too, so that it can be asynchronous."""
    gathered = jax.lax.all_gather(x_AB, "tensor", tiled=True)
    summed = jax.lax.psum(2 * gathered, ("data", "fsdp"))
    scattered = jax.lax.psum_scatter(3 * summed, "fsdp", tiled=True)
    exchanged = jax.lax.all_to_all(scattered, "data", 0, 1, tiled=True)
    passed_on = jax.lax.ppermute(exchanged, "tensor", [(0, 1), (1, 0)])
    return passed_on, jnp.sin(exchanged) @ jnp.cos(exchanged).T


def optimised(on_gpu: bool) -> str:
    """The text, without the tables of source files."""
    shape = parse_mesh(MESH)
    mesh = absent_mesh(shape, catalog.load("dgx-h100")) if on_gpu else host_mesh(shape)
    options = {**compiler_options("gpu"), "xla_gpu_autotune_level": 0} if on_gpu else {}
    dtype = jnp.bfloat16 if on_gpu else jnp.float32
    x_AB = jax.ShapeDtypeStruct((512, 64), dtype, sharding=NamedSharding(mesh, OVER_ALL))
    place = partial(jax.shard_map, mesh=mesh, in_specs=OVER_ALL, out_specs=OVER_ALL)
    step = jax.jit(place(one_of_each, check_vma=False))
    with jax.set_mesh(mesh):
        text = step.lower(x_AB).compile(compiler_options=options).as_text()
    header, rest = text.split("\n", 1)
    return f"{header}\n\n{rest[rest.index('%') :].strip()}\n"


if __name__ == "__main__":
    print(optimised(on_gpu=sys.argv[1] == "gpu"), end="")
