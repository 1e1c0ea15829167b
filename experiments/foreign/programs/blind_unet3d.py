"""Blind: a level of a 3-D U-Net on 96^3 voxels, batch 4: two convolutions down, two up, gradients.

FLOPs a voxel: 2 x 27 x channels in x channels out. 32 -> 32 twice at 96^3, stride 2 to 64 and 64 ->
64 at 48^3, and upsampling by repeat with 96 -> 32 at 96^3; three times, less the gradient of the
volume (Cicek et al., arXiv 1606.06650). Counted before it was priced.
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, SIDE = 4, 96
SHAPES = [(32, 32), (32, 32), (32, 64), (64, 64), (96, 32)]
FINE, COARSE = BATCH * SIDE**3, BATCH * (SIDE // 2) ** 3
PRODUCTS = 2 * 27 * (
    FINE * (32 * 32 + 32 * 32 + 96 * 32) + COARSE * (32 * 64 + 64 * 64)
)  # fmt: skip
WORK = Work(3 * PRODUCTS - 2 * 27 * FINE * 32 * 32)


def conv(x, w, stride=1):
    return jax.nn.relu(
        jax.lax.conv_general_dilated(
            x, w, (stride,) * 3, "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC")
        )
    )


@jax.jit
def gradients(weights, x):
    def loss(w):
        fine = conv(conv(x, w[0]), w[1])
        coarse = conv(conv(fine, w[2], 2), w[3])
        for axis in (1, 2, 3):
            coarse = jnp.repeat(coarse, 2, axis)
        out = conv(jnp.concatenate([fine, coarse], -1), w[4])
        return jnp.square(out.astype(jnp.float32)).mean()

    return jax.grad(loss)(weights)


def price() -> sc.Prediction:
    array = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16)
    weights = [array(3, 3, 3, *shape) for shape in SHAPES]
    x = array(BATCH, SIDE, SIDE, SIDE, 32)
    return sc.predict_step(gradients, weights, x, cluster="dgx-h100")
