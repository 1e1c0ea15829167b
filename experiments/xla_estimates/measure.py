"""One program: compiled for a GPU that is not here, and asked for all its estimates."""

from typing import Any

import jax
from jax._src.lib import xla_client

import scaling as sc
from experiments.foreign.work import product_flops
from experiments.xla_estimates.case import Case, Row
from experiments.xla_estimates.programs import CLUSTER
from scaling.api.pricing import price_program
from scaling.api.result import PredictionResult
from scaling.compile.lower import WITH_ESTIMATES, WITHOUT_DEVICE
from scaling.compile.options import compiler_options
from scaling.program.ir import Collective, Kernel, operations
from scaling.simulate.step import running_kernels


def measured(case: Case) -> Row:
    """Return the row of a program."""
    function, arguments = case.make()
    step = jax.jit(function, donate_argnums=case.donated)
    lowered = step.lower(*arguments)
    options: dict[str, Any] = {**compiler_options("gpu"), **WITHOUT_DEVICE, **WITH_ESTIMATES}
    compiled = lowered.compile(compiler_options=options)
    p = sc.predict_step(compiled, cluster=CLUSTER, **case.words)
    once, looped, missing = _estimates(p)
    flops, moved = _work(p)
    memory = compiled.memory_analysis()
    assert memory is not None, "the plugin of NVIDIA states it"
    executable: Any = compiled.runtime_executable()
    traced: Any = lowered.compiler_ir("hlo")
    (module,) = executable.hlo_modules()
    after, before = _analysis(module), _analysis(traced.as_hlo_module())
    return Row(
        case.name,
        case.shows,
        case.count.how,
        flops=case.count.flops,
        xla_flops=after.get("flops", 0.0),
        traced_flops=before.get("flops", 0.0),
        our_flops=flops,
        bytes=case.count.bytes,
        xla_bytes=after.get("bytes accessed", 0.0),
        our_bytes=moved,
        least_seconds=case.count.least_time(p.cluster.accelerator),
        xla_seconds=once,
        xla_seconds_looped=looped,
        unestimated=missing,
        our_seconds=float(p.step_time),
        our_low=float(p.step_time_low),
        our_high=None if p.unknown else float(p.step_time_high),
        network=sum(float(c.time) for c in p.collectives),
        arguments=memory.argument_size_in_bytes,
        results=memory.output_size_in_bytes,
        donated=memory.alias_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        compiler_peak=p.pricing.program.compiler_peak,
        our_peak=float(p.memory.peak),
    )


def _analysis(module: Any) -> dict[str, float]:
    """The figures that `cost_analysis` would return for this module on a GPU that is here.

    Without the GPU jax has no answer. With it, it runs the same HloCostAnalysis over the compiled
    module (openxla/xla, StreamExecutorExecutable::GetCostAnalysis); only the size of pointers comes
    from the client, that of the CPU here.
    """
    client = jax.devices("cpu")[0].client
    return dict(xla_client._xla.hlo_module_cost_analysis(client, module))


def _estimates(p: PredictionResult) -> tuple[float, float, int]:
    """Seconds of the compiler's estimates, each once and with its iterations; how many lack one."""
    once, looped, missing = 0.0, 0.0, 0
    for op, calls in operations(p.pricing.program.schedule):
        if isinstance(op, Kernel | Collective):
            once += float(op.estimate or 0.0)
            looped += float((op.estimate or 0.0) * calls)
            missing += op.estimate is None
    return once, looped, missing


def _work(p: PredictionResult) -> tuple[float, float]:
    """FLOPs of products, of vectors where there are none, and bytes, as we count them."""
    priced = price_program(p.pricing)
    flops = vector = moved = 0.0
    for kernel, calls in running_kernels(priced):
        flops += float(product_flops(kernel) * calls)
        vector += float(kernel.vector_flops * calls)
        moved += float(priced.kernels[kernel.name].moved * calls)
    return flops or vector, moved
