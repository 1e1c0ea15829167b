"""`make parity`: logits of random small models here and in transformers, both ways.

    their model -> files -> ours, on one device and on eight       import
    ours -> files -> their model                                   export

    their files = ours, bit by bit                                 weights there and back

Ends with 1 where a logit differs by more than the tolerance, or a tensor by a bit. At last stands
a table of all families. --store writes the reference that `make test` compares with, without torch.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from experiments.parity import ours, theirs
from experiments.parity.families import FAMILIES, LONGEST
from scaling.meshes.shape import MeshShape, parse_mesh
from scaling.models.huggingface.read import read_config
from scaling.training.weights.exported import export_weights

MESHES = {"one": MeshShape(), "eight": parse_mesh("data=2,fsdp=2,tensor=2")}
TOLERANCE = 2e-5  # of the largest logit: float32, sums in another order
STORED = Path("tests/models/parity")
FEW = 2  # sequences that are kept
KEPT = ("config.json", "model.safetensors")


def main() -> int:
    """Compare every family; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    ways = f"{'one':>8} {'eight':>8} {'export':>8}  (of it)"
    print(f"{'family':12} {'seed':>4} {'largest':>8} {ways}  weights")
    worst: dict[str, np.ndarray] = {}  # of all seeds
    for family in given.only:
        for seed in range(given.seeds):
            with tempfile.TemporaryDirectory() as folder:
                largest, errors, is_equal = _compared(family, seed, Path(folder))
            found = np.array([*errors, 0.0 if is_equal else 1.0])
            worst[family] = np.maximum(worst.get(family, 0.0), found)
            shown = " ".join(f"{error:8.1e}" for error in errors)
            bits = "equal" if is_equal else "DIFFER"
            print(f"{family:12} {seed:4} {largest:8.2f} {shown}           {bits}", flush=True)
        if given.store:
            _store(family)
    print("| family | one device | eight | exported | weights |\n|---|---|---|---|---|")
    for family, (*errors, bits) in worst.items():
        shown = " | ".join(f"{error:.1e}" for error in errors)
        print(f"| {family} | {shown} | {'differ' if bits else 'equal'} |")
    most = max(map(np.max, worst.values()))
    print(f"worst {most:.1e}, tolerance {TOLERANCE:.0e}")
    return 0 if most <= TOLERANCE else 1


def _compared(family: str, seed: int, folder: Path) -> tuple[float, list[float], bool]:
    """The largest logit, by how much of it each way differs at most, and whether exported weights
    are those that were imported."""
    tokens, expected = theirs.make(family, seed, folder / "theirs")
    largest = float(np.abs(expected).max())
    error = lambda found: float(np.abs(found - expected).max()) / largest
    errors = []
    for shape in MESHES.values():
        model, found = ours.load(folder / "theirs", tokens, _fitting(shape, folder / "theirs"))
        errors.append(error(found))
    export_weights(model, folder / "ours", LONGEST)
    errors.append(error(theirs.load(folder / "ours", tokens)))
    before, after = (load_file(folder / who / KEPT[1]) for who in ("theirs", "ours"))
    names = before.keys() - ({"lm_head.weight"} - after.keys())  # tied: stored once
    is_equal = names == after.keys() and all(np.array_equal(before[n], after[n]) for n in names)
    return largest, errors, is_equal


def _fitting(shape: MeshShape, folder: Path) -> MeshShape:
    """The mesh, without tensor where one key/value head cannot be cut."""
    config = read_config(folder)
    if config.n_kv_heads % shape.tensor == 0:
        return shape
    return MeshShape(data=shape.data, fsdp=shape.fsdp)


def _store(family: str) -> None:
    """One model of the family, its tokens and logits, for the tests."""
    target = STORED / family
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as folder:
        tokens, logits = theirs.make(family, 0, Path(folder))
        for name in KEPT:
            shutil.copy(Path(folder) / name, target / name)
    few = {"tokens": tokens[:FEW].astype(np.int32), "logits": logits[:FEW].copy()}
    save_file(few, target / "logits.safetensors")


if __name__ == "__main__":
    raise SystemExit(main())
