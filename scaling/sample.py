"""Text from a checkpoint of a byte-level run, on one device whatever mesh it was trained on."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from meshes.errors import InputError
from models.transformer import Transformer
from scaling.run import Run
from scaling.train.data import BYTE_VOCABULARY, decode, encode
from scaling.trained import newest_model, run_of_folder


def load_model(folder: Path) -> tuple[Run, Transformer]:
    """The newest checkpoint of a run folder, on the first device.

    Raises:
        InputError: no run.json, no whole checkpoint, not a model of bytes.
    """
    run = run_of_folder(folder)
    if run.model.vocab_size < BYTE_VOCABULARY or run.train.data.endswith(".bin"):
        raise InputError(
            f"{folder} was trained on tokens of {run.train.data!r} (vocab_size "
            f"{run.model.vocab_size}); only models of bytes can be sampled as text"
        )
    return run, newest_model(run, folder)


def generate(
    model: Transformer, prompt: str, seq_len: int, tokens: int, temperature: float, seed: int
) -> str:
    """`prompt` continued by `tokens` sampled bytes.

    The whole window is computed again for each byte (there is no key/value cache); beyond
    `seq_len` bytes the window slides.

    Args:
        seq_len: window the model was trained with.
        temperature: 0 takes the likeliest byte; 1 samples from the model's distribution.

    Raises:
        InputError: an empty prompt, a negative temperature or number of tokens.
    """
    if not prompt:
        raise InputError("--prompt is empty; give at least one character")
    if temperature < 0 or tokens < 0:
        raise InputError(f"--temperature {temperature} and --tokens {tokens} must not be negative")
    device = jax.tree.leaves(model)[0].sharding.mesh
    text = list(encode(prompt))
    key = jax.random.key(seed)
    with jax.set_mesh(device):
        next_token = jax.jit(_next_token)
        for _ in range(tokens):
            window = text[-seq_len:]
            padded = np.zeros((1, seq_len), np.int32)
            padded[0, : len(window)] = window
            key, this = jax.random.split(key)
            text.append(int(next_token(model, padded, len(window) - 1, this, temperature)))
    return decode(text)


def _next_token(
    model: Transformer, window_1S: jax.Array, last: jax.Array, key: jax.Array, temperature: float
) -> jax.Array:
    """One sampled token after position `last`: int scalar."""
    logits_V = model(jnp.asarray(window_1S))[0, last]
    sampled = jax.random.categorical(key, logits_V / jnp.maximum(temperature, 1e-6))
    return jnp.where(temperature > 0, sampled, jnp.argmax(logits_V))
