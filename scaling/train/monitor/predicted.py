"""The prediction that a run starts with; a run is never stopped for the lack of one."""

from scaling.hlo.parse import UnknownHlo
from scaling.meshes.errors import InputError
from scaling.simulate.step import Priced
from scaling.simulate.summary import Prediction
from scaling.train.prepare import Plan, Programs
from scaling.train.running import predict_compiled


def try_to_predict(plan: Plan, programs: Programs) -> tuple[Priced, Prediction] | str:
    """The prediction of the compiled step on the devices at hand, or in words why there is none."""
    try:
        return predict_compiled(programs.step, plan.mesh, plan.run)
    except (InputError, UnknownHlo) as error:
        return f"no prediction: {error}"
