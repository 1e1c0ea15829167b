"""One mesh definition that trains a sharded JAX transformer and prices the same step.

    import scaling as sc

    p = sc.predict("llama3-8b", cluster="dgx-h100", nodes=8)
    p.step_time, p.memory.peak, p.mfu          # seconds, bytes, a ratio
    print(p)                                   # the page of `scaling predict`

The names of `__all__` are loaded when they are first used: `import scaling` imports no JAX.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scaling.api.array import array as array
    from scaling.api.budget import budget as budget
    from scaling.api.calibrate import calibrate as calibrate
    from scaling.api.chip import chip as chip
    from scaling.api.collective import price_collective as price_collective
    from scaling.api.compare import compare as compare
    from scaling.api.count import count as count
    from scaling.api.curves import scaling_curves as scaling_curves
    from scaling.api.hlo import predict_hlo as predict_hlo
    from scaling.api.inputs import load_cluster as load_cluster
    from scaling.api.inputs import load_run as load_run
    from scaling.api.kernel import kernel as kernel
    from scaling.api.limits import limits as limits
    from scaling.api.plan import plan as plan
    from scaling.api.plots import plot_comparisons as plot_comparisons
    from scaling.api.plots import plot_side_by_side as plot_side_by_side
    from scaling.api.predict import predict as predict
    from scaling.api.serve import serve as serve
    from scaling.api.step import device_mesh as device_mesh
    from scaling.api.step import predict_step as predict_step
    from scaling.api.step import pretend as pretend
    from scaling.api.train import train as train
    from scaling.api.trained import evaluate as evaluate
    from scaling.api.trained import sample as sample
    from scaling.course.ladder import collective_ladder as collective_ladder
    from scaling.course.ladder import kernel_ladder as kernel_ladder
    from scaling.course.ladder import step_ladder as step_ladder
    from scaling.course.puzzle import check_puzzle as check_puzzle
    from scaling.hlo.user_hints import Work as Work
    from scaling.meshes.cluster import Cluster as Cluster
    from scaling.meshes.errors import InputError as InputError
    from scaling.meshes.shape import MeshShape as MeshShape
    from scaling.questions.answer import Answer as Answer
    from scaling.run import Batch as Batch
    from scaling.run import Run as Run
    from scaling.simulate.prediction import Prediction as Prediction

_MODULES = {  # module that defines each public name
    "Answer": "scaling.questions.answer",
    "Batch": "scaling.run",
    "Cluster": "scaling.meshes.cluster",
    "InputError": "scaling.meshes.errors",
    "MeshShape": "scaling.meshes.shape",
    "Prediction": "scaling.simulate.prediction",
    "Work": "scaling.hlo.user_hints",
    "Run": "scaling.run",
    "array": "scaling.api.array",
    "budget": "scaling.api.budget",
    "calibrate": "scaling.api.calibrate",
    "chip": "scaling.api.chip",
    "check_puzzle": "scaling.course.puzzle",
    "collective_ladder": "scaling.course.ladder",
    "compare": "scaling.api.compare",
    "count": "scaling.api.count",
    "evaluate": "scaling.api.trained",
    "kernel": "scaling.api.kernel",
    "limits": "scaling.api.limits",
    "kernel_ladder": "scaling.course.ladder",
    "load_cluster": "scaling.api.inputs",
    "load_run": "scaling.api.inputs",
    "device_mesh": "scaling.api.step",
    "plan": "scaling.api.plan",
    "plot_comparisons": "scaling.api.plots",
    "plot_side_by_side": "scaling.api.plots",
    "predict": "scaling.api.predict",
    "predict_hlo": "scaling.api.hlo",
    "predict_step": "scaling.api.step",
    "pretend": "scaling.api.step",
    "price_collective": "scaling.api.collective",
    "sample": "scaling.api.trained",
    "scaling_curves": "scaling.api.curves",
    "serve": "scaling.api.serve",
    "step_ladder": "scaling.course.ladder",
    "train": "scaling.api.train",
}
__all__ = list(_MODULES)
__version__ = "0.7.0"  # of the distribution jax-scaling; pyproject.toml reads it here


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        from scaling.meshes.errors import UnknownName, nearest

        raise UnknownName(f"module 'scaling' has no attribute {name!r}; {nearest(name, __all__)}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
