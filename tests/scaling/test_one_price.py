"""One price for one thing: a collective costs the same whichever command asks for it.

For all clusters of the catalogue and meshes of all shapes that fit: what a step is predicted with,
what a search of plans counts, what `collective`, `serve`, `limits` and `array` say.
"""

import ast
from contextlib import suppress
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scaling as sc
from scaling.api.pricing import price_program
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES, MeshShape
from scaling.profiles.io import profile_of
from scaling.program.ir import COLLECTIVE_KINDS, Collective, Program
from scaling.questions.serving.case import SERVING_AXES, Formats, Servers, served_model
from scaling.questions.serving.step import call_seconds, calls, decode_pass
from scaling.simulate.batch import Prices, timeline_of
from scaling.simulate.step import price, running_collectives
from tests.test_arrows import ROOT, sources

NAMES = tuple(name for name in catalog.names() if name != "host")  # which has to be measured
TORI = tuple(name for name in NAMES if catalog.one_host(name).torus is not None)
SOME = ("dgx-h100", "tpu-v5p")
NODES = (1, 2, 4, 16)
THOROUGH = not settings().derandomize
SAME = 1e-12  # relative: rounding of one sum that is written in two orders
LETTERS = dict(zip(AXES, "STUVWX", strict=True))  # of `array`, which takes one letter for an axis


@cache
def machine(name, nodes):
    """The cluster, or its largest with fewer nodes: a slice of so many chips need not exist."""
    for fewer in range(nodes, 0, -1):
        with suppress(InputError):
            cluster = catalog.load(name, fewer)
            Prices(cluster, profile_of(cluster.accelerator)).groups(())
            return cluster, profile_of(cluster.accelerator)
    raise AssertionError(name)


@st.composite
def meshes(draw, axes=AXES):
    """A cluster, its profile, and a mesh on all of its devices or on a part of them."""
    name = draw(st.sampled_from(TORI) | st.sampled_from(NAMES))  # a torus turns meshes
    cluster, profile = machine(name, draw(st.sampled_from(NODES)))
    left, sizes = cluster.devices, {}
    for axis in draw(st.permutations(axes)):
        sizes[axis] = draw(st.sampled_from([n for n in range(1, left + 1) if left % n == 0]))
        left //= sizes[axis]
    order = tuple(draw(st.permutations(AXES)))
    return cluster, profile, MeshShape(**sizes, device_order=order)


def asked(kind, bytes, cluster, mesh, axes, profile):
    """Seconds that `collective` says, or the words with which it refuses."""
    try:
        where = {"cluster": cluster, "mesh": mesh, "axis": axes, "calibration": profile}
        return sc.price_collective(kind, bytes, **where).time
    except InputError as error:
        return str(error)


def told(price):
    try:
        return price()
    except InputError as error:
        return str(error)


@settings(max_examples=600 if THOROUGH else 60)
@given(meshes(), st.sampled_from(COLLECTIVE_KINDS), st.sets(st.sampled_from(AXES)), st.data())
def test_a_step_a_plan_and_a_collective_alone_ask_for_the_same_devices(where, kind, axes, data):
    cluster, profile, mesh = where
    axes = tuple(axis for axis in mesh.device_order if axis in axes) or mesh.device_order[:1]
    bytes = data.draw(st.sampled_from([8, 10**4, 10**6, 10**9]))
    call = Collective("c", kind=kind, axes=axes, bytes=float(bytes), asynchronous=False)
    program = Program("p", "analytic", mesh.sizes, (call,))
    alone = asked(kind, bytes, cluster, mesh, axes, profile)
    stepped = told(lambda: price(program, cluster, profile).collectives["c"].time)
    planned = told(lambda: float(timeline_of(program, Prices(cluster, profile)).total))
    assert stepped == alone
    assert planned == (alone if isinstance(alone, str) else pytest.approx(alone, rel=SAME))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SOME else pytest.mark.slow) for n in NAMES]
)
def test_every_collective_of_a_predicted_step_costs_what_it_costs_alone(name):
    """On meshes of the cluster's devices that cut one axis by all, or two."""
    cluster, profile = machine(name, 4)
    n, refused = cluster.devices, 0
    for mesh in ({"fsdp": n}, {"fsdp": n // 2, "tensor": 2}, {"stage": 2, "tensor": n // 2}):
        try:
            sets = {"model.n_heads": 16 * n, "model.n_kv_heads": 16 * n, "model.d_model": 32 * n}
            more = {"batch.global_batch": 8 * n, "model.n_layers": 4, "model.head_dim": 16}
            where = {"cluster": cluster, "mesh": mesh, "calibration": profile}
            found = sc.predict("llama3-8b", **where, source="analytic", set=sets | more)
            priced = price_program(found.pricing)
            assert list(running_collectives(priced))
            for call, _ in running_collectives(priced):
                seconds = asked(call.kind, round(call.bytes), cluster, mesh, call.axes, profile)
                cost = priced.collectives[call.name].time
                assert cost == pytest.approx(call.part * seconds, rel=1e-6), call.name
        except InputError:  # heads that do not divide, an axis that lies on no box of a torus
            refused += 1
    assert refused < 2


@settings(max_examples=200 if THOROUGH else 20)
@given(meshes(SERVING_AXES), st.integers(1, 64))
def test_collectives_of_serving_cost_what_they_cost_alone(where, batch):
    cluster, profile, mesh = where
    model = served_model("served", sc.load_run("mixtral-8x7b").model, Formats())
    servers = Servers(cluster, mesh)
    with suppress(InputError):
        for call in calls(decode_pass(servers, model, batch, 4096)):
            axis = "expert" if "experts" in call.name else "tensor"
            if call.groups.shape[1] == getattr(mesh, axis):
                bytes = round(call.bytes)
                alone = asked(call.kind, bytes, cluster, mesh, axis, profile)
                seconds = call_seconds(call, servers, profile) / call.calls
                assert seconds == pytest.approx(alone, rel=1e-3 if bytes < 10**4 else 1e-6)


@settings(max_examples=100 if THOROUGH else 10)
@given(meshes(), st.data())
def test_a_gather_and_a_sum_of_an_array_cost_what_they_cost_alone(where, data):
    cluster, profile, mesh = where
    sizes = {LETTERS[axis]: size for axis, size in mesh.sizes.items()}
    axis = data.draw(st.sampled_from(AXES))
    I, letter = 2**20 * mesh.devices, LETTERS[axis]
    how = {"mesh": sizes, "shape": {"I": I}, "cluster": cluster, "calibration": profile}
    for text, kind in ((f"A[I_{letter}] -> A[I]", "all-gather"),):
        found = told(lambda text=text: float(sc.array(text, **how).fitted))
        alone = asked(kind, 2 * I, cluster, mesh, axis, profile)
        assert found == (alone if isinstance(alone, str) else pytest.approx(alone, rel=1e-9))


@settings(max_examples=100 if THOROUGH else 10)
@given(meshes(("stage", "fsdp")))
def test_the_hop_of_a_pipeline_costs_what_it_costs_alone(where):
    cluster, profile, mesh = where
    if mesh.stage == 1:
        return
    given_ = {"mesh": mesh, "cluster": cluster, "calibration": profile}
    found = told(lambda: sc.limits("llama3-8b", **given_)["hop to the next stage"])
    if isinstance(found, str):
        return
    bytes = np.prod([i.value for i in found.inputs if i.symbol in "bBD"])
    alone = asked("permute", round(bytes), cluster, mesh, "stage", profile)
    assert found.fitted == pytest.approx(alone, rel=1e-6)


HOMES = {  # who may ask where the devices of an axis are in a mesh, before it lies on a cluster
    "meshes/shape.py", "meshes/placement.py",
    "scaling/hlo/replica_groups.py",  # partitions of a compiled program, by axes
    "scaling/hlo/mesh_fit.py",
    "scaling/simulate/step.py",  # which names its own devices
    "scaling/pictures/mesh.py",  # draws them
}  # fmt: skip


def test_one_module_says_which_devices_an_axis_has():
    """All others ask `scaling.meshes.placement`; those of a torus' dimensions have no mesh."""
    found = set()
    using = {path for path in sources("meshes", "scaling") if "groups_along" in path.read_text()}
    for path in using:
        for node in ast.walk(ast.parse(path.read_text())):
            of_shape = isinstance(node, ast.ImportFrom) and node.module == "scaling.meshes.shape"
            if of_shape and "groups_along" in {alias.name for alias in node.names}:
                found.add(str(path.relative_to(ROOT)))
    assert found < HOMES
