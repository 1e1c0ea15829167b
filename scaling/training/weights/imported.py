"""Parameters from safetensors files, straight onto the mesh: each device reads its own slices.

A folder has model.safetensors, or model.safetensors.index.json with the file of each tensor. Only
headers are read until a slice is read. Errors of the library are raised again with the file's name.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy  # noqa: F401  (numpy then knows bfloat16)
import numpy as np
from safetensors import SafetensorError, safe_open

from scaling.meshes.devices import abstract_mesh
from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json, say_once
from scaling.meshes.rules import make_rules
from scaling.meshes.shape import MeshShape
from scaling.models.config import ModelConfig
from scaling.models.execution import Execution
from scaling.models.huggingface.export import family_of
from scaling.models.huggingface.names import (
    GPT2_PREFIX,
    IGNORED,
    StoredParameter,
    stored_parameters,
)
from scaling.models.transformer import Transformer
from scaling.training.weights.mxfp4 import Mxfp4, unpacked
from scaling.training.weights.naming import leaf_names

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
READABLE = ("F32", "BF16", "F16")  # exact in float32
MOST_NAMED = 3  # tensors, in one message
# Prefixes of a text model's tensors, and in files of models that have more parts: those that
# transformers writes from release 5 on, and those of before.
TEXT_PARTS = (("model.", "model.language_model."), ("", "language_model."))


class WeightFiles:
    """The tensors of a folder (or of one file) by name."""

    def __init__(self, path: Path):
        self.path, self._files = path, _files(path)

    @cached_property
    def tensors(self) -> dict[str, Any]:
        """Every tensor, as the library's slices: `get_shape()`, `get_dtype()`, and parts by index.

        Raises:
            InputError: a file that is missing, truncated or no safetensors file; a tensor of the
                index that its file has not.
        """
        tensors: dict[str, Any] = {}
        for file, listed in self._files.items():
            handle = _opened(file)
            there = set(handle.keys())
            missing = sorted((listed or there) - there)
            if missing:
                raise InputError(f"{file} lacks {_some(missing)}, which {INDEX} says it holds")
            tensors |= {name: handle.get_slice(name) for name in listed or there}
        return unpacked(tensors)

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A part of a tensor, in its own number format."""
        part: np.ndarray = self.tensors[name][index]
        return part

    @cached_property
    def prefixes(self) -> tuple[str, str]:
        """How the names of a text model's tensors begin, and how they begin in the files: OpenAI's
        GPT-2 files have no prefix, files of models for pictures and text another one."""
        begins = lambda prefix: any(name.startswith(prefix) for name in self.tensors)
        for ours, theirs in TEXT_PARTS:
            if begins(theirs):
                return ours, theirs
        return ("", "") if begins(GPT2_PREFIX) else (GPT2_PREFIX, "")

    def named(self, name: str) -> str:
        """A tensor's name in the files."""
        ours, theirs = self.prefixes
        return theirs + name.removeprefix(ours) if name.startswith(ours) else name


def _opened(file: Path) -> Any:
    try:
        return safe_open(file, "np")
    except FileNotFoundError:
        raise InputError(f"{file} is missing; {INDEX} beside it names it") from None
    except (SafetensorError, OSError, ValueError) as error:
        size = file.stat().st_size if file.is_file() else 0
        raise InputError(
            f"{file} ({size:,} bytes) is no whole safetensors file: {error}; fetch it again"
        ) from None


def open_weights(
    path: Path, config: ModelConfig, like: Transformer | None = None
) -> tuple[WeightFiles, dict[str, StoredParameter]]:
    """The files of a folder, and the place of each parameter in them. Needs no devices.

    `like`, whose parameters are abstract or not, saves making an abstract model of `config`.

    Raises:
        InputError: no such files, or they are of another model.
    """
    files, family = WeightFiles(path), family_of(config)
    if like is None:
        with jax.sharding.use_abstract_mesh(abstract_mesh(MeshShape())):
            execution = Execution(make_rules(MeshShape(), sequence_parallel=False))
            like = jax.eval_shape(lambda: Transformer(config, execution, jax.random.key(0)))
    shapes = (leaf.shape for leaf in jax.tree.leaves(like))
    parameters = stored_parameters(config, family, dict(zip(leaf_names(like), shapes, strict=True)))
    config_file = (path if path.is_dir() else path.parent) / "config.json"
    data = read_json(config_file) if config_file.is_file() else {}
    if not isinstance(data, dict):
        raise InputError(f"{config_file}: expected a JSON object")
    # Rotated channels of latent attention are interleaved pairs unless it denies that
    # (transformers' default).
    if data.get("rope_interleave") is False:
        parameters = {name: replace(stored, pairs=range(0)) for name, stored in parameters.items()}
    _check(files, parameters)
    return files, parameters


def import_weights(path: Path, like: Transformer) -> Transformer:
    """The parameters in a folder of files (or one file), sharded and in formats like `like`.

    Args:
        like: shapes, formats and shardings (jax.ShapeDtypeStruct) of the model's parameters.

    Raises:
        InputError: as `open_weights`.
    """
    files, parameters = open_weights(path, like.config, like)

    def on_mesh(stored: StoredParameter, leaf: Any) -> jax.Array:
        assert stored.parameter_shape == leaf.shape, (stored, leaf.shape)
        read: dict[str, np.ndarray] = {}  # replicas share what is read

        def shard(index: tuple[slice, ...] | None) -> np.ndarray:
            assert index is not None
            if (key := str(index)) not in read:
                read[key] = read_part(files, stored, index).astype(leaf.dtype)
            return read[key]

        return jax.make_array_from_callback(leaf.shape, leaf.sharding, shard)

    stored = [parameters[name] for name in leaf_names(like)]
    arrays = list(map(on_mesh, stored, jax.tree.leaves(like)))
    return jax.tree.unflatten(jax.tree.structure(like), arrays)


def _check(files: WeightFiles, parameters: Mapping[str, StoredParameter]) -> None:
    """Raise InputError unless the files have exactly the tensors of a model; reads headers only.

    The message has the number of tensors that are missing, too many, of another shape or of a
    number format that is not read, and the first of each.
    """
    tensors = files.tensors
    wanted = {files.named(n): s.shape for s in parameters.values() for n in s.names()}
    present = [(n, tensors[n], shape) for n, shape in wanted.items() if n in tensors]
    missing = [name for name in wanted if name not in tensors]
    shapes = [(name, list(t.get_shape()), list(shape)) for name, t, shape in present]
    wrong = [f"{name} is {there}, not {here}" for name, there, here in shapes if there != here]
    dtypes = {name: t.get_dtype() for name, t, _ in present}
    formats = [f"{name} is {dtype}" for name, dtype in dtypes.items() if dtype not in READABLE]
    ignored = (*IGNORED, "lm_head.weight")  # a head that is tied may be there all the same
    other = [name for name in tensors if name not in wanted and not name.endswith(ignored)]
    if part := files.prefixes[1]:
        left_out = [name for name in other if not name.startswith(part)]
        other = [name for name in other if name.startswith(part)]
        say_once(f"{files.path}: {len(left_out)} tensors beside the text model are left out")
    if packed := [name for name, tensor in tensors.items() if isinstance(tensor, Mxfp4)]:
        say_once(
            f"{files.path}: {len(packed)} tensors in mxfp4 are read as the bf16 numbers that they "
            "stand for; an export has these, not 4 bits"
        )
    problems = [
        (missing, f"{len(missing)} of {len(wanted)} tensors are missing"),
        (wrong, f"{len(wrong)} of {len(wanted)} tensors have another shape"),
        (formats, f"{len(formats)} tensors are neither {', '.join(READABLE)}"),
        (sorted(other), f"{len(other)} tensors have no place in this model"),
    ]
    messages = [f"{what} ({_some(names)})" for names, what in problems if names]
    if messages:
        raise InputError(
            f"{files.path} does not hold this model: {'; '.join(messages)}. Name the model by the "
            'config.json beside the weights: "model": {"config": FOLDER}'
        )


def read_part(files: WeightFiles, stored: StoredParameter, index: tuple[slice, ...]) -> np.ndarray:
    """A part of a parameter, float32: only the slices of the files that it needs are read.

    `index` has one slice of step 1 per dimension of the parameter; the files are checked.
    """
    ranges = [
        range(*rows.indices(n)) for rows, n in zip(index, stored.parameter_shape, strict=True)
    ]
    stack = stored.layers
    layers: Any = [None] if stack is None else [stack[i] for i in ranges.pop(0)]
    experts: Any = ranges.pop(0) if stored.experts else [None]
    inner = dict(zip(stored.dims, ranges, strict=True))
    tensor = lambda layer, expert: _tensor(files, stored, stored.tensor(layer, expert), inner)
    parts = [[tensor(layer, expert) for expert in experts] for layer in layers]
    array = np.array(parts, np.float32)  # [layers, experts, ...], each 1 where there are none
    lost = (0,) if stack is None else ()
    return array.squeeze((*lost, *(() if stored.experts else (1,))))


def _tensor(
    files: WeightFiles, stored: StoredParameter, name: str, inner: Mapping[str, range]
) -> np.ndarray:
    """One layer's or expert's part: rows of the file, transposed to the parameter's order.

    Where dimensions are one dimension in the file, the first is sliced while reading; channels in
    another order are read in full.
    """
    sizes = stored.sizes
    unsliced = {d: range(sizes[d]) for d in stored.dims[-1:] if stored.pairs}
    cuts, steps, shape = [], [], []
    for number, dims in enumerate(stored.dims_in_file):
        first, others = dims[0], dims[1:]
        size = math.prod(sizes[d] for d in others)
        offset, step = (stored.offset, stored.step) if number == stored.cut else (0, 1)
        rows = unsliced.get(first, inner[first])
        start, stop = rows.start * size, rows.stop * size
        cuts.append(slice(offset + start * step, offset + (stop - 1) * step + 1))
        steps.append(slice(None, None, step))
        shape += [len(rows), *(sizes[d] for d in others)]
    letters = "".join(stored.dims_in_file)
    array = files.read(files.named(name), tuple(cuts))[tuple(steps)].reshape(shape)
    array = array.transpose([letters.index(d) for d in stored.dims])
    if stored.pairs:
        array = array[..., deinterleaved(array.shape[-1], stored.pairs)]
    sliced = {dims[0] for dims in stored.dims_in_file} - unsliced.keys()
    rest = {d: slice(inner[d].start, inner[d].stop) for d in stored.dims if d not in sliced}
    return array[tuple(rest.get(d, slice(None)) for d in stored.dims)]


def deinterleaved(channels: int, pairs: range) -> np.ndarray:
    """The index of each of our channels in a file where those of `pairs` are interleaved pairs.

    From the first on they are (2i, 2i + 1) in the file and (i, i + len(pairs) / 2) here.
    """
    index = np.arange(channels)
    index[pairs.start : pairs.stop] = np.array(pairs).reshape(-1, 2).T.reshape(-1)
    return index


def _files(path: Path) -> dict[Path, set[str] | None]:
    """Each file, and its tensors according to the index (None: no index)."""
    if path.is_file() and path.suffix == ".safetensors":
        return {path: None}
    if (path / INDEX).is_file():
        index = read_json(path / INDEX)
        listed = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(listed, dict) or not all(isinstance(f, str) for f in listed.values()):
            raise InputError(f"{path / INDEX} has no weight_map from tensors to files")
        if outside := [file for file in listed.values() if Path(file).name != file]:
            raise InputError(f"{path / INDEX} names {outside[0]!r}; only files beside it are read")
        by_file: dict[Path, set[str]] = {}
        for name, file in listed.items():
            by_file.setdefault(path / file, set()).add(name)
        return dict(by_file)
    if (path / SINGLE).is_file():
        return {path / SINGLE: None}
    raise InputError(f"{path} holds neither {SINGLE} nor {INDEX}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
