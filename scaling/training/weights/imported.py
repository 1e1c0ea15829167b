"""Parameters from safetensors files, straight onto the mesh: each device reads its own slices."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json
from scaling.models.config import ModelConfig
from scaling.models.huggingface.export import family_of
from scaling.models.huggingface.names import Stored, stored_parameters
from scaling.models.transformer import Transformer
from scaling.training.weights.files import WeightFiles, check_weights, read_part
from scaling.training.weights.naming import leaf_names


def open_weights(path: Path, config: ModelConfig) -> tuple[WeightFiles, dict[str, Stored]]:
    """The files of a folder, and the place of each parameter in them. Needs no devices.

    Raises:
        InputError: no such files, or they are of another model.
    """
    files, parameters = WeightFiles(path), stored_parameters(config, family_of(config))
    config_file = (path if path.is_dir() else path.parent) / "config.json"
    data = read_json(config_file) if config_file.is_file() else {}
    if not isinstance(data, dict):
        raise InputError(f"{config_file}: expected a JSON object")
    # Rotated channels of latent attention are interleaved pairs unless it denies that
    # (transformers' default).
    if data.get("rope_interleave") is False:
        parameters = {name: replace(stored, interleaved=0) for name, stored in parameters.items()}
    check_weights(files, parameters)
    return files, parameters


def import_weights(path: Path, like: Transformer) -> Transformer:
    """The parameters in a folder of files (or one file), sharded and in formats like `like`.

    Args:
        like: shapes, formats and shardings (jax.ShapeDtypeStruct) of the model's parameters.

    Raises:
        InputError: as `open_weights`.
    """
    files, parameters = open_weights(path, like.config)
    pairs = zip(leaf_names(like), jax.tree.leaves(like), strict=True)
    arrays = [_read_onto_mesh(files, parameters[name], leaf) for name, leaf in pairs]
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def _read_onto_mesh(files: WeightFiles, stored: Stored, leaf: Any) -> jax.Array:
    assert stored.parameter_shape == leaf.shape, (stored, leaf.shape)
    read: dict[str, np.ndarray] = {}  # replicas share what is read

    def part(index: tuple[slice, ...] | None) -> np.ndarray:
        assert index is not None
        key = str(index)
        if key not in read:
            read[key] = read_part(files, stored, index).astype(leaf.dtype)
        return read[key]

    return jax.make_array_from_callback(leaf.shape, leaf.sharding, part)
