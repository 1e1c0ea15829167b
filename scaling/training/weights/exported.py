"""Parameters as safetensors files in Hugging Face's names, with their config.json."""

import json
import math
import shutil
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save_file

from scaling.meshes.errors import InputError
from scaling.models.huggingface.export import to_huggingface
from scaling.models.huggingface.names import Stored, stored_parameters
from scaling.models.transformer import Transformer
from scaling.training.weights.files import INDEX, SINGLE, deinterleaved
from scaling.training.weights.naming import leaf_names

FORMATS = {"fp32": np.dtype("float32"), "bf16": np.dtype(jnp.bfloat16)}
MOST_BYTES = 5 * 10**9  # of one file: transformers' own limit until release 5

Named = tuple[str, np.ndarray]


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
    stored = stored_parameters(params.config, config["model_type"])
    sizes = {
        tensor: kind.itemsize * math.prod(stored[path].shape)
        for path in _ordered(stored)
        for tensor in stored[path].names()
    }
    _prepare(folder, sum(sizes.values()))
    files = _files(sizes, most)
    where = {tensor: file for file, tensors in files.items() for tensor in tensors}
    made = tensors_of(params, stored)  # in the order of the files
    for file, tensors in files.items():
        arrays = {n: np.ascontiguousarray(a.astype(kind)) for n, a in islice(made, len(tensors))}
        assert list(arrays) == tensors
        save_file(arrays, folder / file, {"format": "pt"})
    if len(files) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": where}
        (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    text = json.dumps(config, indent=1) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")
    for file in files:  # the library makes them for their owner only
        shutil.copymode(folder / "config.json", folder / file)
    return [folder / file for file in files]


def tensors_of(params: Transformer, stored: dict[str, Stored]) -> Iterator[Named]:
    """Every tensor of the files, float32; only parameters that share tensors are in memory."""
    arrays = dict(zip(leaf_names(params), jax.tree.leaves(params), strict=True))
    for _, paths in groupby(_ordered(stored), key=lambda path: _place(stored[path])):
        group = [(stored[path], np.asarray(arrays[path])) for path in paths]
        yield from _joined(group)


def _ordered(stored: dict[str, Stored]) -> list[str]:
    """Parameters, those that share tensors side by side."""
    return sorted(stored, key=lambda path: (_place(stored[path]), stored[path].part))


def _place(stored: Stored) -> tuple[str, int]:
    """A key that is equal for parameters that share tensors."""
    return stored.name, stored.layers.start if stored.layers else 0


def _joined(group: list[tuple[Stored, np.ndarray]]) -> Iterator[Named]:
    first = group[0][0]
    for i, layer in enumerate(first.layers if first.layers is not None else [None]):
        for expert in range(first.experts) if first.experts else [None]:
            at: tuple[Any, ...] = () if layer is None else (i,)
            at += () if expert is None else (expert,)
            parts = [_in_file_order(stored, array[at]) for stored, array in group]
            yield first.tensor(layer, expert), np.concatenate(parts, axis=-1)


def _in_file_order(stored: Stored, array: np.ndarray) -> np.ndarray:
    """One layer's part of a parameter in the order of the file."""
    if stored.interleaved:
        places = deinterleaved(array.shape[-1], stored.interleaved)
        array = array[..., np.argsort(places)]
    letters = "".join(stored.dims_in_file)
    array = array.transpose([stored.dims.index(d) for d in letters])
    *others, last = stored.shape
    return array.reshape(*others, last // stored.part[1])


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
    if len(groups) == 1:
        return {SINGLE: groups[0]}
    count = len(groups)
    return {f"model-{i:05}-of-{count:05}.safetensors": g for i, g in enumerate(groups, 1)}


def _prepare(folder: Path, needed: int) -> None:
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
