"""What the programs of NeuralGCM share: the model that its package carries, and its work by hand.

A transform of a field of 32 levels (Kochkov et al., arXiv 2311.07222, supplement C: products by a
Fourier and by a Legendre basis, for every wavenumber m) costs 2 (m i j + m j l) a level: on the
dynamics' grid of i x j = 190 x 95 points and m x l = 126 x 64 waves, and on the network's of
128 x 64 and 128 x 65. Read off the package: of the dynamics' explicit terms 28 transforms, and 6
products over the levels of a point; 3 times in each of 3 substeps (SIL3); of the implicit ones 18
products over the levels of a wave. The network reads 32 fields and gives 6.
"""

import jax
import jax.numpy as jnp
import neuralgcm

LEVELS, POINTS, WAVES = 32, 190 * 95, 126 * 64
TERMS = 9 * LEVELS * (28 * 2 * (126 * POINTS + WAVES * 95) + 6 * 2 * LEVELS * POINTS)
IMPLICIT = 3 * 18 * 2 * LEVELS**2 * WAVES
READ = (32 + 6) * LEVELS * 2 * (128 * 128 * 64 + 128 * 64 * 65)
COLUMN = 1343 * 32 + 2 * 4 * 32**2 + 32 * 192  # encoder, two blocks of four layers, decoder
CONVOLUTIONS = LEVELS * 5 * (9 * 16 + 3 * 16**2 + 16 * 8)
NETWORK = READ + 128 * 64 * 2 * (COLUMN + CONVOLUTIONS)
HOUR = TERMS + IMPLICIT + NETWORK  # FLOPs of `advance`


def model():
    """Return the package's small stochastic model, 2.8 degrees."""
    checkpoint = neuralgcm.demo.load_checkpoint_tl63_stochastic()
    return neuralgcm.PressureLevelModel.from_checkpoint(checkpoint)


def state(made, members):
    """Return shapes of the encoded state of each member, and of the sea that all see."""
    array = lambda levels: jax.ShapeDtypeStruct((levels, 128, 64), jnp.float32)
    hour = {"sim_time": jax.ShapeDtypeStruct((), jnp.float32)}
    air = dict.fromkeys(made.input_variables, array(37)) | hour
    sea = dict.fromkeys(made.forcing_variables, array(1)) | hour
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), members))
    each = jax.vmap(lambda air, sea, key: made.encode(air, sea, key), (None, None, 0))
    return jax.eval_shape(each, air, sea, keys), sea


def ahead(made, state, sea, hours):
    """Return a state `hours` later."""
    return jax.lax.scan(lambda x, _: (made.advance(x, sea), None), state, length=hours)[0]
