"""`scaling limits`: the engine's numbers against the formulas, and the guide's rules."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scaling as sc
from scaling.collectives.cost import collective_time
from scaling.collectives.explain import IDEAL
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.meshes.levels import levels
from scaling.meshes.placement import groups_on
from scaling.meshes.shape import AXES, MeshShape, parse_mesh
from scaling.profiles.io import profile_of
from scaling.questions.axis_answers import (
    LimitsContext,
    context_limit,
    expert_limit,
    switch_limit,
    tensor_limit,
    weights_limit,
)
from scaling.questions.exchanges import (
    DATA,
    FORWARD,
    MlpShape,
    hidden_from,
    mlp_of,
    of_activations,
    of_keys,
    of_tokens,
    of_weights,
    times_hidden,
)
from scaling.questions.least import least_where
from scaling.questions.limits import limits
from scaling.questions.mixed_limits import bubble
from scaling.questions.places import between, inside
from scaling.simulate.collective import collective_groups
from tests.scaling.questions.formulas import check

CLUSTERS = [  # one of each form of links
    *(("dgx-h100", 40), ("gb200-nvl72", 36), ("mi300x-8", 1), ("p4d", 4)),
    *(("rtx3090-10-nvlink", 1), ("h100-pcie-8", 2), ("mi250x-8", 2)),
    *(("tpu-v5p", 16), ("tpu-v5e", 4)),
]


def switch_bound(s, groups, cut):
    """Tokens per device by the engine's bound on any algorithm."""
    size = s.mlp.reduce_bytes * s.mlp.weights / (cut.devices / cut.stage)
    bound = float(collective_time("all-reduce", size, groups, s.cluster, IDEAL).lower_bound)
    sums = of_weights(s.mlp, cut, groups, s.cluster)
    return least_where(lambda rows: sums.work(rows, IDEAL) >= bound) / sums.shared_by


def setting(name, nodes, model):
    cluster, run = catalog.load(name, nodes), sc.load_run(model)
    return LimitsContext(run, mlp_of(run), cluster, profile_of(cluster.accelerator))


@pytest.mark.parametrize(("name", "nodes"), CLUSTERS)
def test_the_engine_finds_what_the_formulas_say_at_every_place(name, nodes):
    s = setting(name, nodes, "mixtral-8x7b")
    for place in [*inside(s.cluster), *between(s.cluster)]:
        groups, where = place.groups, (place.groups, s.cluster)
        cut = MeshShape(tensor=2, stage=3)
        for over in (DATA, FORWARD):
            found = weights_limit(s, "data", groups, cut, over)
            engine = hidden_from(of_weights(s.mlp, cut, *where, over), IDEAL)
            assert found.ideal == pytest.approx(engine, rel=1e-6)
        if switched := switch_limit(s, groups, cut):
            assert switched.ideal == pytest.approx(switch_bound(s, groups, cut), rel=1e-6)
        assert tensor_limit(s, "tensor", groups, 4096).ideal == pytest.approx(
            times_hidden(of_activations(s.mlp, *where), IDEAL, 4096), rel=1e-6
        )
        assert expert_limit(s, "expert", groups, 4096).ideal == pytest.approx(
            hidden_from(of_tokens(s.mlp, 4096, *where), IDEAL), rel=1e-6
        )
        assert context_limit(s, "context", groups).ideal == pytest.approx(
            hidden_from(of_keys(s.run.model, s.mlp, *where), IDEAL), rel=1e-6
        )


def test_a_ring_that_is_hidden_at_any_length_is_said_to_be():
    cluster = catalog.load("dgx-h100", 2)
    s = LimitsContext(RUN, mlp_of(RUN), cluster, PROFILE)
    near, far = (context_limit(s, "context", layout.groups) for layout in inside(cluster))
    assert near.fitted == 0 and near.notes and far.fitted > 0 and not far.notes


@settings(max_examples=8)
@given(st.permutations(AXES), st.sampled_from(AXES), st.data())
def test_formula_and_engine_agree_for_an_axis_of_any_mesh(order, axis, data):
    sizes, left = {}, 64
    for name in order:
        sizes[name] = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if left % n == 0]))
        left //= sizes[name]
    sizes[axis] = max(2, sizes[axis])
    mesh = MeshShape(**sizes, device_order=tuple(order))
    s = LimitsContext(
        RUN, mlp_of(RUN), catalog.load("dgx-h100", max(1, mesh.devices // 8)), PROFILE
    )
    groups, cut = (
        groups_on(mesh, [axis], s.cluster),
        MeshShape(tensor=mesh.tensor, stage=mesh.stage),
    )
    where = groups, s.cluster
    found = weights_limit(s, "data", groups, cut).ideal
    assert found == pytest.approx(hidden_from(of_weights(s.mlp, cut, *where), IDEAL), rel=1e-6)
    found = tensor_limit(s, "tensor", groups, 512).ideal
    assert found == pytest.approx(times_hidden(of_activations(s.mlp, *where), IDEAL, 512), rel=1e-6)
    ring = context_limit(s, "context", groups)
    engine = hidden_from(of_keys(s.run.model, s.mlp, *where, ring=False), IDEAL)
    assert ring["by all-gather"].ideal == pytest.approx(engine, rel=1e-6)
    assert ring.ideal == pytest.approx(
        hidden_from(of_keys(s.run.model, s.mlp, *where), IDEAL), rel=1e-6
    )
    check(limits(replace(RUN, mesh=mesh), s.cluster, PROFILE))


H100 = catalog.load("dgx-h100", 1)
PROFILE = profile_of(H100.accelerator)
RUN = sc.load_run("mixtral-8x7b")


@pytest.mark.parametrize(
    ("name", "nodes", "mesh"),
    [
        ("dgx-h100", 1, None),
        ("gb200-nvl72", 2, None),
        ("tpu-v5p", 16, None),
        ("dgx-h100", 8, "data=2,stage=2,tensor=4,context=4"),
        ("dgx-h100", 2, "tensor=8"),
        ("tpu-v5p", 16, "data=4,fsdp=4,tensor=4"),
    ],
)
def test_every_formula_gives_its_textbook_number(name, nodes, mesh):
    check(sc.limits("llama3-8b", name, nodes, mesh))


def test_experts_have_limits_of_their_own():
    found = check(sc.limits("mixtral-8x7b", "dgx-h100", 2, "fsdp=2,expert=8"))
    assert found["fsdp, forward"].formula.startswith("E / k")
    assert {row["axis"] for row in found.rows} == {"fsdp, forward", "fsdp, backward", "expert"}


# The guide's rules


def test_data_parallelism_of_a_superpod():
    found = sc.limits("llama3-70b", "dgx-h100", 128)
    assert found["rule"].ideal == pytest.approx(2475, rel=1e-3)
    assert found.ideal == pytest.approx(2475 * 127 / 128, rel=1e-3)
    assert found["sums in the switch"].ideal == pytest.approx(2475 / 2, rel=1e-3)
    assert [row["rule (tokens)"] for row in found.rows][0] == pytest.approx(2200, rel=1e-3)
    assert "NICs of a node" in found.binds


@pytest.mark.parametrize(
    ("nodes", "mesh", "tokens"),
    [(2, "data=2,tensor=8", 1237), (512, "data=64,stage=8,tensor=8", 309 * 63 / 64)],
)
def test_replicas_that_fill_nodes_share_their_nics(nodes, mesh, tokens):
    found = sc.limits("llama3-70b", "dgx-h100", nodes, mesh)
    assert found["data"].ideal == pytest.approx(tokens, rel=2e-3)


def test_experts_need_more_tokens_by_experts_over_chosen():
    values = {"model.moe.n_experts": 128, "model.moe.experts_per_token": 4}
    found = sc.limits("llama3-8b", "dgx-h100", 64, set=values)
    assert found["rule"].ideal == pytest.approx(79_200, rel=1e-3)


def test_mixed_optimum_and_threshold_on_a_torus():
    values = {"model.d_ff": 32768, "batch.global_batch": 48, "batch.seq_len": 1000}
    found = sc.limits("llama3-70b", "tpu-v5p", 16, set=values)["fewest tokens with fsdp and tensor"]
    assert found["X_opt"].ideal == pytest.approx(math.sqrt(48_000 / 32_768 * 2 * 64))
    assert found["B over N"].ideal == pytest.approx(2550**2 / (2 * 32_768))


def test_rings_of_a_mesh_as_it_is_laid_decide_its_optimum():
    """fsdp=16 along two dimensions of 4 x 4 x 4, tensor=4 along the third; then the other way."""
    wide = check(sc.limits("llama3-70b", "tpu-v5p", 16, "fsdp=16,tensor=4"))
    narrow = sc.limits("llama3-70b", "tpu-v5p", 16, "fsdp=4,tensor=16")
    assert wide["X_opt"].ideal / narrow["X_opt"].ideal == pytest.approx(2)


def test_each_level_by_itself_and_the_most_of_them():
    found = sc.limits("llama3-70b", "dgx-h100", 2)["each level by itself"]
    leaf = next(row for row in found.rows if row["link"].startswith("NICs of a node"))
    assert leaf["textbook (tokens)"] == pytest.approx(1237, rel=1e-3)
    assert found.ideal == pytest.approx(1925, rel=1e-3)


def test_links_that_carry_less_than_what_is_gathered_have_their_share_as_it_is():
    """Two racks of 72: their NICs bring in a part, and G arrays would be 0.99 of one."""
    found = check(sc.limits("llama3-70b", cluster="gb200-nvl72", nodes=36))
    assert found.formula == "C / (W / s)"
    assert found["rule"].ideal == found.ideal


@pytest.mark.parametrize(
    ("cluster", "nodes", "devices"), [("gb200-nvl72", 36, 72), ("gb200-nvl72", 3, 12), ("p5", 2, 8)]
)
def test_the_largest_tensor_axis_is_that_of_an_nvlink_domain(cluster, nodes, devices):
    found = sc.limits("llama3-70b", cluster=cluster, nodes=nodes)["largest tensor axis"]
    assert next(i.value for i in found.inputs if i.symbol == "X") == devices


def test_links_have_a_plural():
    found = sc.limits("llama3-70b", cluster="rtx3090-10")
    assert "of one of these switches" in str(found)


def test_slices_over_the_data_centre_network():
    pods = replace(catalog.load("tpu-v5p", 64), domain_nodes=16)  # slices of 4 x 4 x 4
    found = sc.limits("llama3-70b", pods)
    assert found["data parallelism between slices"]["rule of a unit"].ideal == pytest.approx(73_440)


# What holds in any case


@given(st.floats(1e-6, 1e12), st.floats(1e-3, 1e12))
def test_a_solution_takes_the_time_that_is_sought(slope, target):
    assert slope * least_where(lambda x: slope * x >= target) == pytest.approx(target, rel=1e-6)


def test_what_takes_longer_from_the_start_needs_nothing():
    assert least_where(lambda x: 2.0 + x >= 1.0) == 0.0


@settings(max_examples=20)
@given(st.sampled_from([2, 4, 8]), st.integers(0, 3), st.floats(1.1, 10))
def test_a_faster_link_never_asks_for_more_tokens(tensor, log, factor):
    mesh = parse_mesh(f"data={2**log * 8 // tensor * 2},tensor={tensor}")
    need = []
    for rate in (200e9, 200e9 * factor):
        place = catalog.load("dgx-h100", 16, {"node_network_bandwidth": rate})
        groups = collective_groups(place, mesh, ["data"])
        mlp, profile = MlpShape(4096, 16384, 3), profile_of(place.accelerator)
        need.append(hidden_from(of_weights(mlp, MeshShape(tensor=tensor), groups, place), profile))
    assert need[1] <= need[0] * (1 + 1e-6)


@given(st.integers(2, 64), st.integers(1, 64), st.integers(1, 8))
def test_the_sought_microbatches_have_a_small_bubble(stages, microbatches, virtual):
    values = {"batch.microbatches": microbatches, "pipeline.virtual_stages": virtual}
    run = sc.load_run("tiny", set=values)
    s = LimitsContext(run, mlp_of(run), H100, PROFILE)
    found = bubble(s, stages)
    needed = float(found.parts[0])
    share = lambda m: (stages - 1) / (virtual * m + stages - 1)
    assert found.ideal == pytest.approx(share(microbatches))
    assert share(needed) <= 0.05 * (1 + 1e-9)
    assert needed == 1 or share(needed - 1) > 0.05 * (1 - 1e-9)


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        *(("dgx-v100", {}), ("dgx-station-v100", {}), ("tpu-v5p", {}), ("rtx4090-8", {})),
        *(("dgx-h100", {"gpus_per_node": 2}), ("l40s-8", {}), ("h100-pcie-8", {})),
    ],
)
def test_a_single_node_has_limits(name, overrides):
    check(sc.limits("gpt2-124m", name, overrides=overrides))


def test_places_of_a_cluster_are_whole_groups_of_all_its_devices():
    for name, nodes in CLUSTERS:
        cluster = catalog.load(name, nodes)
        assert levels(cluster)
        for place in [*inside(cluster), *between(cluster)]:
            assert len(np.unique(place.groups)) == place.groups.size
            assert place.devices > 1
        assert inside(cluster)[-1].devices == cluster.devices


# Bad input


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("llama3-70b",), {}, "add cluster"),
        (("llama3-70x", "dgx-h100"), {}, "llama3-70b"),
        (("llama3-70b", "dgx-h10"), {}, "dgx-h100"),
        (("llama3-70b", "host"), {}, "this machine"),
        (("llama3-70b", "dgx-h100", 200_000), {}, "up to 1,048,576 devices"),
        (("llama3-70b", "dgx-h100", 1, "tensor=16"), {}, "nodes=2"),
        (("llama3-70b", "dgx-h100", 1, "tensr=8"), {}, "tensor"),
        (("llama3-70b", "dgx-h100", 1, "data=1"), {}, "sends nothing"),
        (("llama3-70b", "dgx-h100"), {"overrides": ["gpus_per_node=1"]}, "sends nothing"),
        (("llama3-70b", "dgx-h100"), {"set": {"precision.compute": "fp4"}}, "fp4"),
        (("llama3-70b", "dgx-v100"), {"set": {"precision.compute": "fp8"}}, "fp8|bf16"),
        (("llama3-70b", "dgx-h100"), {"set": {"model.d_f": 1}}, "d_ff"),
        (("llama3-70b", "dgx-h100"), {"overrides": ["link_bandwith=1GB/s"]}, "link_bandwidth"),
        (("llama3-70b", "tpu-v5p", 16, "data=3,tensor=5"), {}, "slice"),
    ],
)
def test_bad_input_says_how_to_write_it(arguments, options, message):
    with pytest.raises(InputError, match=message):
        sc.limits(*arguments, **options)


@pytest.mark.parametrize("tensor", (1, 4, 8))
@pytest.mark.parametrize("sequence_parallel", (True, False))
def test_a_hop_between_stages_sends_and_takes_what_predict_prices(tensor, sequence_parallel):
    where = {
        "cluster": "dgx-h100",
        "nodes": 16,
        "mesh": f"stage=16,tensor={tensor},data={8 // tensor}",
        "set": {
            "batch.microbatches": 32,
            "sharding.sequence_parallel": sequence_parallel and tensor > 1,
        },
    }
    hop = sc.limits("llama3-70b", **where)["hop to the next stage"]
    priced = sc.predict("llama3-70b", source="analytic", **where)
    (permute,) = [row for row in priced.collectives if row.kind == "permute"]
    given = {each.symbol: each.value for each in hop.inputs}
    assert given["b"] * given["B"] / given["Y"] * given["D"] == permute.bytes
    alone = sc.price_collective("permute", permute.bytes, axis="stage", **_place(where)).time
    assert hop.fitted == pytest.approx(alone, rel=1e-9)


def _place(where):
    return {name: where[name] for name in ("cluster", "nodes", "mesh")}
