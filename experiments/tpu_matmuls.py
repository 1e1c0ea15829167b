"""Compiles the guide's matmuls for an absent TPU v5e: the texts in scaling/hlo/kept.

    pip install 'jax[tpu]==0.10.2' -e .            in an environment of its own
    JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1 python -m experiments.tpu_matmuls

    matmul-gathered      A[B_X, D_Y] @ W[D, F_Y]: XLA gathers A, then multiplies
    matmul-overlapped    the same as the guide writes it with shard_map: parts of A go around
    matmul-unsharded     A[B_X, D] @ W[D, F_Y]: nothing is sent

("How to Scale Your Model", chapter "Programming TPUs in JAX", collective matmul.) The arrays are
the guide's: int32, as jnp.arange makes them. In bf16 this compiler overlaps the first by itself.
"""

import functools
import gzip
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from scaling.meshes.devices import named_mesh

FOLDER = Path(__file__).parents[1] / "scaling" / "hlo" / "kept"
B, D, F = 1024, 2048, 8192
X, Y = 2, 4


def product(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    """The product, however XLA sends it."""
    return lhs @ rhs


def rotating(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
    """Multiply a part of lhs while the next one arrives."""
    index, chunk = jax.lax.axis_index("Y"), lhs.shape[1]

    def part(i: int, lhs: jax.Array) -> jax.Array:
        return lhs @ jax.lax.dynamic_slice_in_dim(rhs, (index + i) % Y * chunk, chunk)

    def step(i: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        total, lhs = carry
        update = part(i, lhs)
        moved = jax.lax.ppermute(lhs, "Y", perm=[(j, (j - 1) % Y) for j in range(Y)])
        return total + update, moved

    total = jnp.zeros((lhs.shape[0], rhs.shape[1]), lhs.dtype)
    total = jax.lax.pcast(total, ("X", "Y"), to="varying")
    total, lhs = jax.lax.fori_loop(0, Y - 1, step, (total, lhs), unroll=True)
    return total + part(Y - 1, lhs)


def main() -> None:
    """Compile all three and keep their texts, paths shortened."""
    place = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x4")
    mesh = named_mesh({"X": X, "Y": Y}, place.devices)

    def array(shape: tuple[int, ...], *spec: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=NamedSharding(mesh, P(*spec)))

    lhs, rhs = array((B, D), "X", "Y"), array((D, F), None, "Y")
    jitted = jax.jit(product, out_shardings=NamedSharding(mesh, P("X", "Y")))
    specs = {"in_specs": (P("X", "Y"), P(None, "Y")), "out_specs": P("X", "Y")}
    written = jax.jit(functools.partial(jax.shard_map, mesh=mesh, **specs)(rotating))
    versions = "-".join(f"{name}-{metadata.version(name)}" for name in ("jax", "libtpu"))
    folder = FOLDER / versions
    folder.mkdir(parents=True, exist_ok=True)
    for name, lowered in {
        "matmul-gathered": jitted.lower(lhs, rhs),
        "matmul-overlapped": written.lower(lhs, rhs),
        "matmul-unsharded": jitted.lower(array((B, D), "X", None), rhs),
    }.items():
        text = lowered.compile().as_text() or ""
        text = text.replace(f"{Path(__file__).parents[1]}/", "")
        (folder / f"{name}.hlo.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
