"""Parameters as safetensors files in Hugging Face's names, with their config.json."""

import json
import math
import shutil
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from scaling.meshes.errors import InputError
from scaling.models.huggingface.export import to_huggingface
from scaling.models.huggingface.names import StoredParameter, stored_parameters
from scaling.models.transformer import Transformer
from scaling.training.weights.imported import INDEX, SINGLE, deinterleaved
from scaling.training.weights.naming import to_dict

FORMATS = {"fp32": np.dtype("float32"), "bf16": np.dtype(jnp.bfloat16)}
MOST_BYTES = 5 * 10**9  # of one file: transformers' own limit until release 5


def export_weights(
    params: Transformer, folder: Path, seq_len: int, dtype: str = "fp32", most: int = MOST_BYTES
) -> list[Path]:
    """Write config.json and the weights; returns the files.

    Args:
        params: arrays that this process can read.
        folder: created; must be empty.
        seq_len: longest sequence, where the model has no table of positions.
        dtype: "fp32" keeps every bit, "bf16" rounds to nearest.
        most: bytes of one file (at least one tensor).

    Raises:
        InputError: a model that no family expresses, a folder that is not empty, too little space.
    """
    kind = FORMATS[dtype]
    config = to_huggingface(params.config, seq_len, kind.name)
    shapes = {name: leaf.shape for name, leaf in to_dict(params).items()}
    stored = stored_parameters(params.config, config["model_type"], shapes)
    # Parameters that share tensors are side by side.
    ordered = sorted(stored, key=lambda path: (_tensor_key(stored[path]), stored[path].offset))
    sizes = {
        tensor: kind.itemsize * math.prod(stored[path].shape)
        for path in ordered
        for tensor in stored[path].names()
    }
    needed = sum(sizes.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError(f"{folder} is not empty; choose another --output")
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise InputError(
            f"cannot write to {folder}: {error.strerror}; choose another --output"
        ) from None
    if free < needed:
        raise InputError(f"{folder}: {needed:,} bytes are needed, {free:,} are free")
    files = _files(sizes, most)
    tensors = _tensors(params, stored, ordered)  # in the order of the files
    for file, names in files.items():
        arrays = {n: np.ascontiguousarray(a.astype(kind)) for n, a in islice(tensors, len(names))}
        assert list(arrays) == names
        save_file(arrays, folder / file, {"format": "pt"})
    documents = {"config.json": config}
    if len(files) > 1:
        weight_map = {tensor: file for file, names in files.items() for tensor in names}
        documents[INDEX] = {"metadata": {"total_size": needed}, "weight_map": weight_map}
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for file in files:  # the library makes them for their owner only
        shutil.copymode(folder / "config.json", folder / file)
    return [folder / file for file in files]


def _tensor_key(stored: StoredParameter) -> tuple[str, int]:
    return stored.name, stored.layers[0] if stored.layers else 0


def _tensors(
    params: Transformer, stored: dict[str, StoredParameter], ordered: list[str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Every tensor of the files, float32; only parameters that share tensors are in memory."""
    arrays = to_dict(params)
    for _, paths in groupby(ordered, key=lambda path: _tensor_key(stored[path])):
        group = [(stored[path], np.asarray(arrays[path])) for path in paths]
        first = group[0][0]
        stack = len(first.parameter_shape) - len(first.dims)  # dims of layers and experts
        indices = np.ndindex(first.parameter_shape[:stack])
        for name, index in zip(first.names(), indices, strict=True):
            tensor = np.empty(first.shape, group[0][1].dtype)
            for of_array, array in group:
                place = [slice(None)] * tensor.ndim
                place[of_array.cut] = slice(of_array.offset, None, of_array.step)
                rows = of_array.own_shape[of_array.cut]
                part = tensor[tuple(place)].swapaxes(0, of_array.cut)[:rows]
                part[:] = _in_file_order(of_array, array[index]).swapaxes(0, of_array.cut)
            yield name, tensor


def _in_file_order(stored: StoredParameter, array: np.ndarray) -> np.ndarray:
    if stored.pairs:
        places = deinterleaved(array.shape[-1], stored.pairs)
        array = array[..., np.argsort(places)]
    array = array.transpose([stored.dims.index(d) for dims in stored.dims_in_file for d in dims])
    return array.reshape(stored.own_shape)


def _files(sizes: dict[str, int], most: int) -> dict[str, list[str]]:
    """Names of files and of the tensors in each, in the order in which tensors are made."""
    groups: list[list[str]] = [[]]
    space = most
    for name, size in sizes.items():
        if size > space and groups[-1]:
            groups.append([])
            space = most
        groups[-1].append(name)
        space -= size
    count = len(groups)
    file = lambda i: f"model-{i:05}-of-{count:05}.safetensors" if count > 1 else SINGLE
    return {file(i): group for i, group in enumerate(groups, 1)}
