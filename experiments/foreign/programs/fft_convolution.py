"""A long convolution by FFT (Hyena's): 64 x 1024 channels of 8192 samples, forward, float32.

No products. Bytes: the padded signal (16,384 complex64 of half the spectrum) is written and read
at least once between the two transforms, beside reading and writing the signal (Poli et al., arXiv
2302.10866).
"""

import jax
import jax.numpy as jnp

import scaling as sc
from experiments.foreign.work import Work

BATCH, CHANNELS, T = 64, 1024, 8192


@jax.jit
def convolve(x, kernel):
    spectrum = jnp.fft.rfft(x, 2 * T) * jnp.fft.rfft(kernel, 2 * T)
    return jnp.fft.irfft(spectrum, 2 * T)[..., :T]


WORK = Work(bytes=BATCH * CHANNELS * (2 * 4 * T + 2 * 8 * T))


def price() -> sc.Prediction:
    x, kernel = (jax.ShapeDtypeStruct((*n, CHANNELS, T), jnp.float32) for n in ((BATCH,), ()))
    return sc.predict_step(convolve, x, kernel, cluster="dgx-h100")
