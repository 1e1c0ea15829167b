"""`scaling price`: a step that is not ours, from a script or from XLA's dump."""

import json as json_text
import math
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import scaling as sc
from scaling.meshes.errors import InputError

Options = Mapping[str, Any]  # of `sc.predict_hlo` and `sc.predict_step`, as far as they are given


def price(
    call: "partial[Any]",
    step: str = "",
    *,
    hlo: Path | None = None,
    cluster: str | None = None,
    trips: tuple[str, ...] = (),
    local: tuple[str, ...] = (),
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
        hlo: XLA's dump *after_optimizations.txt, or a folder of dumps; needs no JAX.
        cluster: catalogue name or TOML file.
        trips: how often a loop runs whose trips only the run tells, such as decode.py:40=512.
        local: NAME=FLOPS of a custom kernel that talks to no other device; NAME alone: by its
            bytes.
        compare: hold the price beside a profile of the real run: a folder that jax.profiler.trace
            wrote, or its HOST.xplane.pb or trace in JSON.
        steps: steps in that profile; None: counted by what runs in each.
        trace: write the timeline for Perfetto; with --compare the measured one beside it.
        plot: write a picture (.png, .svg): time=FILE, memory=FILE, roofline=FILE, timeline=FILE or
            mesh=FILE; as for `scaling predict`.
        dump_hlo: write the compiled program's text.
        explain: also show each term's formula, the longest operations and the evidence of every
            figure (with --json on stderr).
        json: print one JSON document.
        verbose: show what the compiler writes to stderr, instead of keeping it in a log.
    """
    options = dict(call.keywords)
    read = [p for p in (hlo, options.get("calibration"), compare) if p is not None]
    place = _checked(step, hlo, cluster, compare, steps, dump_hlo)
    pictures = _pictures(plot)
    _check_outputs(step, read, {**pictures, "--trace": trace, "--dump-hlo": dump_hlo})
    recorded = []
    if compare is not None:  # before anything is compiled
        from scaling.api.profile import compared, recorded_profile

        recorded = recorded_profile(compare, place, steps)
    options["trips"] = {k: _number("--trips", k, v) for k, v in _pairs("--trips", trips)}
    options["kernels"] = dict(map(_kernel, local))
    if hlo is not None:
        result: Any = sc.predict_hlo(hlo, place, **options)
    else:
        result = _from_script(step, place, {**options, "estimates": explain, "dump_hlo": dump_hlo})
    beside = compared(result, result.pricing, recorded, steps) if recorded else None
    if trace is not None:
        (beside or result).trace(trace)
        print(f"trace: {trace} (open it at https://ui.perfetto.dev)", file=sys.stderr)
    for option, path in pictures.items():
        result.plot(option.split()[-1], path)
    if json:
        more = {"compare": beside.to_dict()} if beside else {}
        print(json_text.dumps(result.to_dict() | more, allow_nan=False), flush=True)
    else:
        print(f"{result}\n\n{beside}" if beside else result, flush=True)
    if explain:
        print(f"\n{result.explain()}", file=sys.stderr if json else sys.stdout)
    return 0


def _checked(
    step: str,
    hlo: Path | None,
    cluster: str | None,
    compare: Path | None,
    steps: int | None,
    dump_hlo: Path | None,
) -> str:
    """Return the cluster; refuse what contradicts itself, before anything is compiled."""
    if bool(step) == bool(hlo):
        what = "both a script and --hlo" if step else "neither a script nor --hlo"
        raise InputError(f"{what}: give FILE.py:make, or --hlo with XLA's dump")
    if cluster is None:
        raise InputError("for which cluster? add --cluster, such as --cluster dgx-h100")
    if steps is not None and compare is None:
        raise InputError("--steps is of a profile: add --compare PROFILE")
    if hlo and dump_hlo:
        raise InputError("--dump-hlo writes what is compiled here; --hlo has a dump already")
    if step and ".py:" not in step:
        raise InputError(f"{step}: write FILE.py:FUNCTION, such as step.py:make")
    return cluster


def _pictures(plot: tuple[str, ...]) -> dict[str, Path]:
    """Return the pictures to write, by `--plot KIND`."""
    if not plot:
        return {}
    from scaling.api.plots import KINDS, picture_paths

    return {f"--plot {kind}": path for kind, path in picture_paths("--plot", plot, KINDS).items()}


def _check_outputs(step: str, read: list[Path], outputs: Mapping[str, Path | None]) -> None:
    from scaling.api.output_paths import check_outputs

    script = [Path(step.rpartition(":")[0])] if step else []
    check_outputs(outputs, [*read, *script])


def _from_script(step: str, cluster: str, options: dict[str, Any]) -> Any:
    """Return the price of the step that a script makes."""
    from scaling.api.inputs import axis_sizes, cluster_for
    from scaling.api.script import script_step

    mesh, nodes, overrides = (options.pop(name, None) for name in ("mesh", "nodes", "overrides"))
    sizes = axis_sizes(mesh) if mesh else {}
    place = cluster_for(math.prod(sizes.values()), cluster, nodes, overrides)
    mesh_of_all = lambda: sc.device_mesh(sizes or {"data": place.devices}, place)
    # The script prints to stderr: stdout holds our page or its JSON only.
    printed = redirect_stdout(sys.stderr)
    with sc.pretend(place), printed, script_step(step, mesh_of_all) as made:
        return sc.predict_step(
            made.step,
            *made.arguments,
            step_kwargs=made.keywords,
            cluster=place,
            mesh=mesh_of_all() if mesh and not made.is_on_a_mesh else None,
            name=Path(step.rpartition(":")[0]).stem,
            **options,
        )


def _pairs(option: str, texts: tuple[str, ...]) -> list[tuple[str, str]]:
    """(key, value) of texts "key=value"."""
    for text in texts:
        if not all(text.rpartition("=")[::2]):
            raise InputError(f"{option} {text}: write NAME=NUMBER")
    return [text.rpartition("=")[::2] for text in texts]


def _number(option: str, key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(f"{option} {key}={value}: {value!r} is no number") from None


def _kernel(text: str) -> tuple[str, Any]:
    """The name and the work of a kernel that talks to no other device."""
    name, equals, flops = text.partition("=")
    return name, sc.Work(flops=_number("--local", name, flops)) if equals else "local"
