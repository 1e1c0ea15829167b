"""The tensors of a folder of safetensors files, and slices of them. Only headers are read until a
slice is read.

A folder has model.safetensors, or model.safetensors.index.json with the file of each tensor. Errors
of the library are raised again with the file's name.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy  # noqa: F401  (numpy then knows bfloat16)
import numpy as np
from safetensors import SafetensorError, safe_open

from scaling.meshes.errors import InputError
from scaling.meshes.reading import read_json
from scaling.models.huggingface.names import GPT2_PREFIX, IGNORED, Stored

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
READABLE = ("F32", "BF16", "F16")  # exact in float32
MOST_NAMED = 3  # tensors, in one message


@dataclass(frozen=True)
class TensorInfo:
    """One tensor of a folder."""

    file: Path
    shape: tuple[int, ...]
    dtype: str  # as safetensors names it


class WeightFiles:
    """The tensors of a folder (or of one file) by name."""

    def __init__(self, path: Path):
        self.path = path
        self._open: dict[Path, Any] = {}
        self._files = _files(path)

    @cached_property
    def tensors(self) -> dict[str, TensorInfo]:
        """Every tensor, from the headers.

        Raises:
            InputError: a file that is missing, truncated or no safetensors file; a tensor of the
                index that its file has not.
        """
        tensors = {}
        for file, listed in self._files.items():
            handle = self._handle(file)
            there = set(handle.keys())
            missing = sorted((listed or there) - there)
            if missing:
                raise InputError(f"{file} lacks {_some(missing)}, which {INDEX} says it holds")
            for name in listed or there:
                part = handle.get_slice(name)
                tensors[name] = TensorInfo(file, tuple(part.get_shape()), part.get_dtype())
        return tensors

    def read(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A part of a tensor, in its own number format."""
        return self._handle(self.tensors[name].file).get_slice(name)[index]

    def _handle(self, file: Path) -> Any:
        if file not in self._open:
            try:
                self._open[file] = safe_open(file, "np")
            except FileNotFoundError:
                raise InputError(f"{file} is missing; {INDEX} beside it names it") from None
            except (SafetensorError, OSError, ValueError) as error:
                size = file.stat().st_size if file.is_file() else 0
                raise InputError(
                    f"{file} ({size:,} bytes) is no whole safetensors file: {error}; fetch it again"
                ) from None
        return self._open[file]


def check_weights(files: WeightFiles, parameters: Mapping[str, Stored]) -> None:
    """Raise InputError unless the files have exactly the tensors of a model; reads headers only.

    The message has the number of tensors that are missing, too many, of another shape or of a
    number format that is not read, and the first of each.
    """
    wanted = {n: s.shape for s in parameters.values() for n in map(_tensor_names(files), s.names())}
    tensors = files.tensors
    missing = [name for name in wanted if name not in tensors]
    wrong = [
        f"{name} is {list(tensors[name].shape)}, not {list(shape)}"
        for name, shape in wanted.items()
        if name in tensors and tensors[name].shape != shape
    ]
    ignored = (*IGNORED, "lm_head.weight")  # a head that is tied may be there all the same
    other = [name for name in tensors if name not in wanted and not name.endswith(ignored)]
    formats = [
        f"{name} is {tensors[name].dtype}"
        for name in wanted
        if name in tensors and tensors[name].dtype not in READABLE
    ]
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


def read_part(files: WeightFiles, stored: Stored, index: tuple[slice, ...]) -> np.ndarray:
    """A part of a parameter, float32: only the slices of the files that it needs are read.

    `index` has one slice of step 1 per dimension of the parameter; the files are checked.
    """
    ranges = [
        range(*rows.indices(n)) for rows, n in zip(index, stored.parameter_shape, strict=True)
    ]
    stack = stored.layers
    layers: Any = [None] if stack is None else [stack[i] for i in ranges.pop(0)]
    experts: Any = ranges.pop(0) if stored.experts else [None]
    name_in_file, inner = _tensor_names(files), dict(zip(stored.dims, ranges, strict=True))
    parts = [
        [
            _tensor(files, stored, name_in_file(stored.tensor(layer, expert)), inner)
            for expert in experts
        ]
        for layer in layers
    ]
    array = np.array(parts, np.float32)  # [layers, experts, ...], each 1 where there are none
    lost = (0,) if stack is None else ()
    return array.squeeze((*lost, *(() if stored.experts else (1,))))


def _tensor(
    files: WeightFiles, stored: Stored, name: str, inner: Mapping[str, range]
) -> np.ndarray:
    """One layer's or expert's part: rows of the file, transposed to the parameter's order.

    Where dimensions are one dimension in the file, the first is sliced while reading; channels in
    another order are read in full.
    """
    sizes, (part, _) = stored.sizes, stored.part
    unsliced = {d: range(sizes[d]) for d in stored.dims[-1:] if stored.interleaved}
    cuts, shape = [], []
    for dims in stored.dims_in_file:
        first, others = dims[0], dims[1:]
        step = math.prod(sizes[d] for d in others)
        # Parts lie along the last dimension; elsewhere there is one part, of number 0.
        offset = part * sizes[first] * step if dims == stored.dims_in_file[-1] else 0
        rows = unsliced.get(first, inner[first])
        cuts.append(slice(offset + rows.start * step, offset + rows.stop * step))
        shape += [len(rows), *(sizes[d] for d in others)]
    letters = "".join(stored.dims_in_file)
    array = files.read(name, tuple(cuts)).reshape(shape)
    array = array.transpose([letters.index(d) for d in stored.dims])
    if stored.interleaved:
        array = array[..., deinterleaved(array.shape[-1], stored.interleaved)]
    sliced = {dims[0] for dims in stored.dims_in_file} - unsliced.keys()
    slices = [
        slice(None) if d in sliced else slice(inner[d].start, inner[d].stop) for d in stored.dims
    ]
    return array[tuple(slices)]


def deinterleaved(channels: int, rotated: int) -> np.ndarray:
    """The index of each of our channels in a file whose last `rotated` ones are interleaved pairs.

    Pairs are (2i, 2i + 1) in the file and (i, i + rotated / 2) here.
    """
    kept = channels - rotated
    pairs = np.arange(rotated).reshape(-1, 2).T.reshape(-1)
    return np.concatenate([np.arange(kept), kept + pairs])


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


def _tensor_names(files: WeightFiles) -> Any:
    """A function from names to names in the files: OpenAI's GPT-2 files have no prefix."""
    bare = not any(name.startswith(GPT2_PREFIX) for name in files.tensors)
    return lambda name: name.removeprefix(GPT2_PREFIX) if bare else name


def _some(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
