"""One mesh definition that trains a sharded JAX transformer and prices the same step.

    import scaling as sc

    p = sc.predict("llama3-8b", cluster="dgx-h100", nodes=8)
    p.step_time, p.memory.peak, p.mfu          # seconds, bytes, a ratio
    print(p)                                   # the page of `scaling predict`

`__all__` is what most programs need; the guide's questions, ladders and puzzles are `sc.learn`.
Names are loaded when they are first used: `import scaling` imports no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaling import learn as learn
    from scaling.api.calibrate import calibrate as calibrate
    from scaling.api.collective import price_collective as price_collective
    from scaling.api.compare import compare as compare
    from scaling.api.diff import diff as diff
    from scaling.api.hlo import predict_hlo as predict_hlo
    from scaling.api.inputs import load_cluster as load_cluster
    from scaling.api.minimize import minimize as minimize
    from scaling.api.plan import plan as plan
    from scaling.api.plan_step import plan_step as plan_step
    from scaling.api.predict import predict as predict
    from scaling.api.runs import load_run as load_run
    from scaling.api.step import device_mesh as device_mesh
    from scaling.api.step import predict_step as predict_step
    from scaling.api.step import pretend as pretend
    from scaling.api.train import train as train
    from scaling.api.trained import sample as sample
    from scaling.meshes.errors import InputError as InputError
    from scaling.meshes.shape import MeshShape as MeshShape
    from scaling.run import Batch as Batch
    from scaling.run import Run as Run
    from scaling.training.protocol import Training as Training

_PUBLIC = {  # name -> the module that defines it
    "predict": "scaling.api.predict",
    "predict_step": "scaling.api.step",
    "predict_hlo": "scaling.api.hlo",
    "device_mesh": "scaling.api.step",
    "pretend": "scaling.api.step",
    "price_collective": "scaling.api.collective",
    "plan": "scaling.api.plan",
    "plan_step": "scaling.api.plan_step",
    "compare": "scaling.api.compare",
    "diff": "scaling.api.diff",
    "calibrate": "scaling.api.calibrate",
    "train": "scaling.api.train",
    "sample": "scaling.api.trained",
    "load_cluster": "scaling.api.inputs",
    "load_run": "scaling.api.runs",
    "Training": "scaling.training.protocol",
    "minimize": "scaling.api.minimize",
    "Run": "scaling.run",
    "Batch": "scaling.run",
    "MeshShape": "scaling.meshes.shape",
    "InputError": "scaling.meshes.errors",
}
_ALSO = {  # asked for less often: they work, and are not listed
    "Answer": "scaling.questions.answer",
    "Cluster": "scaling.meshes.cluster",
    "Prediction": "scaling.simulate.prediction",
    "Work": "scaling.hlo.user_hints",
    "config": "scaling.api.config",
    "evaluate": "scaling.api.trained",
    "export": "scaling.api.export",
    "plot_comparisons": "scaling.api.compare",
    "plot_side_by_side": "scaling.api.result",
    "scaling_curves": "scaling.api.curves",
    "sharding": "scaling.api.sharding",
}
_LEARN = "scaling.learn"
_OF_LEARN = (  # of `sc.learn`, also without it
    *("array", "budget", "chip", "count", "kernel", "limits", "serve"),
    *("collective_ladder", "kernel_ladder", "step_ladder", "check_puzzle"),
)
_MODULES = _PUBLIC | _ALSO | dict.fromkeys(_OF_LEARN, _LEARN)

__all__ = list(_PUBLIC)
__version__ = "0.7.0"  # of the distribution jax-scaling; pyproject.toml reads it here


def __getattr__(name: str) -> Any:
    if name == "learn":
        return importlib.import_module(_LEARN)
    if name not in _MODULES:
        from scaling.meshes.errors import UnknownName, nearest

        known = [*_MODULES, "learn"]
        raise UnknownName(f"module 'scaling' has no attribute {name!r}; {nearest(name, known)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "learn", "__version__"])


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext scaling` in a notebook: the cell magic %%price (`scaling.cli.magic`)."""
    importlib.import_module("scaling.cli.magic").load_ipython_extension(ipython)
