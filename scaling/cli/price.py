"""`scaling price`: a step that is not ours, from a script or from XLA's dump."""

from functools import partial
from pathlib import Path
from typing import Any

import scaling as sc
from scaling.cli.show import show_prediction
from scaling.meshes.errors import InputError


def price(
    call: "partial[Any]",
    step: str = "",
    *,
    hlo: Path | None = None,
    cluster: str | None = None,
    option: tuple[str, ...] = (),
    save: Path | None = None,
    against: Path | None = None,
    fail_if: str | None = None,
    compare: Path | None = None,
    steps: int | None = None,
    trace: Path | None = None,
    plot: tuple[str, ...] = (),
    dump_hlo: Path | None = None,
    explain: bool = False,
    json: bool = False,
    verbose: bool = False,
) -> int:
    """Price it and print the page.

    Args:
        step: a function of a file, FILE.py:make, that returns (step, arguments), or (step,
            arguments, keywords): make(mesh) gets a jax mesh over the cluster's devices, make()
            finds them in jax.devices().
        hlo: XLA's dump *after_optimizations.txt, or a folder of dumps; needs no JAX. Or a
            program of a TPU that comes with the package: matmul-gathered, matmul-overlapped,
            matmul-unsharded.
        cluster: catalogue name or TOML file.
        option: an option of XLA, such as xla_gpu_enable_triton_gemm=false; before those of jax.jit,
            of XLA_FLAGS, and of this project.
        save: write the price with its classes of operations, lines of code and buffers, as the base
            of later ones.
        against: hold the price beside such a base, and print what changed as Markdown instead of
            the page; the exit code is 3 where it grew by more than --fail-if allows.
        fail_if: limits of the growth, such as time>5%,peak>2%,flops>1% (the default); also bytes,
            communication, any term of the time and any part of the memory.
        compare: hold the price beside a profile of the real run: a folder that jax.profiler.trace
            wrote, or its HOST.xplane.pb or trace in JSON.
        steps: steps in that profile; None: counted by what runs in each.
        trace: write the timeline for Perfetto, or for XProf into a folder NAME.xprof; with
            --compare the measured one beside it.
        plot: write a picture (.png, .svg): time=FILE, memory=FILE, roofline=FILE, timeline=FILE or
            mesh=FILE; as for `scaling predict`.
        dump_hlo: write the compiled program's text.
        explain: also show each term's formula, the longest operations and the evidence of every
            figure (with --json on stderr).
    """
    from scaling.api.output_paths import check_outputs, picture_paths
    from scaling.api.result import KINDS

    if bool(step) == bool(hlo):
        what = "both a script and --hlo" if step else "neither a script nor --hlo"
        raise InputError(f"{what}: give FILE.py:make, or --hlo with XLA's dump")
    if cluster is None:
        raise InputError("for which cluster? add --cluster, such as --cluster dgx-h100")
    if steps is not None and compare is None:
        raise InputError("--steps is of a profile: add --compare PROFILE")
    if fail_if is not None and against is None:
        raise InputError("--fail-if limits the growth over a base: add --against BASE")
    if hlo and dump_hlo:
        raise InputError("--dump-hlo writes what is compiled here; --hlo has a dump already")
    if hlo and option:
        raise InputError("--option is of a compile; --hlo is compiled already")
    if step and ".py:" not in step:
        raise InputError(f"{step}: write FILE.py:FUNCTION, such as step.py:make")
    options = dict(call.keywords)
    pictures = picture_paths(plot, KINDS)
    outputs = {f"--plot {kind}": path for kind, path in pictures.items()}
    script = Path(step.rpartition(":")[0]) if step else None
    read = [p for p in (hlo, options.get("calibration"), compare, against, script) if p is not None]
    check_outputs({**outputs, "--save": save, "--trace": trace, "--dump-hlo": dump_hlo}, read)
    recorded, held = [], None
    if against is not None:
        from scaling.api.diff import EXCEEDED, guard, read_base

        read_base(against, fail_if)
    if compare is not None:  # before anything is compiled
        from scaling.api.profile import compared, recorded_profile

        recorded = recorded_profile(compare, cluster, steps)
    if hlo is not None:
        prediction: Any = sc.predict_hlo(hlo, cluster, **options)
    else:
        from scaling.api.script import price_made

        options |= {"estimates": explain, "options": option, "dump_hlo": dump_hlo}
        prediction = price_made(step, cluster, **options)
    if save is not None:
        prediction.save(save)
    if against is not None:
        held = guard(prediction, against, fail_if)
    beside = compared(prediction, prediction.pricing, recorded, steps) if recorded else None
    show_prediction(
        prediction, json, explain, trace, pictures, beside, advice=held is None, held=held
    )
    return EXCEEDED if held is not None and held.exceeded else 0
