"""Constraints and limits: what is found is as they say, and the best that is."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.meshes.errors import InputError
from scaling.meshes.shape import AXES
from scaling.planning.constraints import contradiction, fixed_settings, largest, pairs_of
from scaling.planning.front import undominated
from scaling.planning.objectives import Goal, Tariff, value_of
from scaling.planning.sites import node_counts
from scaling.planning.space import all_choices
from scaling.profiles.prices import Price
from scaling.run.recipes import recipe
from tests.scaling.cli.running import check_refused
from tests.scaling.cli.running import run as run_command

RUN = replace(recipe("gpt2-124m"), mesh=None)
RUN = replace(RUN, batch=replace(RUN.batch, global_batch=8))
TARIFF = Tariff("chip", Price(2.0, 2.0, 2.0, "stated", "", ""))
EVERY = tuple(all_choices(RUN, 4))


def runs_of(every):
    """The runs of all configurations."""
    return [choices.run(RUN, i) for choices in every for i in range(choices.count)]


@given(
    most=st.dictionaries(st.sampled_from(AXES), st.integers(1, 8), max_size=3),
    microbatches=st.none() | st.sampled_from([1, 2, 4]),
    remat=st.none() | st.sampled_from(["none", "full"]),
)
def test_a_constrained_space_is_what_a_filter_of_runs_leaves(most, microbatches, remat):
    settings = {"batch.microbatches": microbatches, "remat": remat}
    settings = {key: value for key, value in settings.items() if value is not None}
    constraints = [*(largest(*each) for each in most.items()), *fixed_settings(RUN, settings)]
    kept = lambda run: (
        all(getattr(run.mesh, axis) <= n for axis, n in most.items())
        and microbatches in (None, run.batch.microbatches)
        and remat in (None, run.remat)
    )
    wanted = [run for run in runs_of(EVERY) if kept(run)]
    assert runs_of(all_choices(RUN, 4, constraints)) == wanted


def test_the_fewest_that_contradict_each_other_are_named():
    constraints = [
        largest("stage", 2),
        largest("tensor", 2),
        *fixed_settings(RUN, {"remat": "full", "mesh.tensor": "4"}),
    ]
    values = lambda some, key: {
        value for each in all_choices(RUN, 8, some) for value in each.values(RUN, key)
    }
    text = contradiction(constraints, values)
    assert text.startswith("--max-tensor 2 and --fixed mesh.tensor=4 contradict")
    alone = contradiction([*fixed_settings(RUN, {"mesh.data": 3})], values)
    assert alone.startswith("--fixed mesh.data=3") and alone.endswith("1, 2, 4, 8")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--max-tensor", "4", "--fixed", "mesh.tensor=8"], ["--max-tensor 4 and --fixed mesh"]),
        (["--fixed", "mesh.stage=1", "--fixed", "mesh.stage=2"], ["mesh.stage=2 contradict"]),
        (["--fixed", "model.n_layers=2"], ["n_layers", "known: mesh.stage"]),
        (["--fixed", "remat=some"], ["none, selective, full"]),
        (["--fixed", "stage"], ["KEY=VALUE"]),
        (["--max-stage", "0"], ["--max-stage=0", "at least 1"]),
        (["--nodes", "8:4"], ["4:8"]),
        (["--nodes", "1:4", "--mesh", "fsdp=8"], ["--nodes 1:4 and --mesh fsdp=8 contradict"]),
        (["--objective", "speed"], ["'speed'", "time, cost, money, energy"]),
        (["--deadline", "3d"], ["--deadline", "--tokens"]),
        (["--deadline", "3x", "--tokens", "1T"], ["--deadline", "'x'"]),
        (["--cluster", "dgx-h100,dgx-a100,dgx-h100"], ["dgx-h100 twice"]),
        (["--cluster", "dgx-h100,"], ["nothing beside a comma"]),
    ],
)
def test_what_is_refused(capsys, options, parts):
    place = [] if "--cluster" in options else ["--cluster", "dgx-h100"]
    check_refused(run_command(capsys, "plan", "gpt2-124m", *place, *options), *parts)


@pytest.mark.parametrize(
    ("text", "counts"),
    [("4:64", [4, 8, 16, 32, 64]), ("3:12", [3, 4, 6, 8, 12]), ("5", [5]), ("1:1", [1]), (7, [7])],
)
def test_numbers_of_nodes(text, counts):
    assert node_counts(text) == counts


@given(st.floats(1e-3, 1e3), st.integers(1, 4096), st.floats(1e3, 1e9))
def test_objectives_are_shares_of_one_another(seconds, devices, tokens):
    of = lambda watts=1.0, **goal: float(
        value_of(Goal(**goal), TARIFF, tokens, np.array(seconds), devices, watts)
    )
    each = of()
    assert each == pytest.approx(seconds / tokens)
    assert of(objective="cost") == pytest.approx(each * devices)
    assert of(objective="money") == pytest.approx(each * devices * 2 / 3600)
    assert of(700.0, objective="energy") == pytest.approx(each * devices * 700)
    whole = each * 1e12
    assert of(tokens=1e12, deadline=whole * 1.01) == each
    assert of(tokens=1e12, deadline=whole * 0.99) == np.inf
    dollars = whole * devices * 2 / 3600
    assert of(tokens=1e12, budget=dollars * 1.01) == each
    assert of(tokens=1e12, budget=dollars * 0.99) == np.inf


@pytest.mark.parametrize("software", ["pytorch-fsdp", pytest.param("jax", marks=pytest.mark.slow)])
def test_energy_is_that_of_the_expected_draw_and_none_better_is_left_out(software):
    run = replace(RUN, software=software)
    limits = {"max_stage": 2, "max_context": 1, "objective": "energy", "tokens": "1T"}
    found = sc.plan(run, "dgx-h100", top=3, **limits)
    joules = [plan.energy * plan.goodput for plan in found.plans]
    assert joules == sorted(joules) and found.certificate.gap == 0 and found.pruned
    whole = sc.plan(run, "dgx-h100", top=10**6, **limits)
    assert whole.pruned == 0 and found.best.run == whole.best.run
    least = min(plan.energy * plan.goodput for plan in whole.plans)
    assert joules[0] == pytest.approx(least, rel=1e-9)
    assert "% energy: " in found.plans[1].why and " W a device; time " in found.plans[1].why


def test_pairs_are_of_texts_and_of_mappings():
    assert pairs_of(["a = 1", "b=x"], "--fixed") == {"a": "1", "b": "x"}
    assert pairs_of({"a": 1}, "--fixed") == {"a": 1}
    with pytest.raises(InputError, match="contradict"):
        pairs_of(["a=1", "a=2"], "--fixed")


def test_money_under_a_deadline_takes_the_fewest_devices_that_meet_it():
    options = {"max_stage": 1, "max_context": 1, "max_tensor": 1, "price": 2.0, "top": 3}
    free = sc.plan(RUN, "dgx-h100", "1:4", objective="money", tokens="1T", **options)
    assert free.best.cluster.nodes == 1 and free.constraints[0] == "--max-stage 1"
    limit = free.best.total_time * 0.9
    found = sc.plan(
        RUN, "dgx-h100", "1:4", objective="money", tokens="1T", deadline=limit, **options
    )
    assert found.best is None or found.best.total_time <= limit
    assert free.best.money == pytest.approx(2.0 * free.best.device_hours)
    row = free.rows()[0]
    assert row["dollars_per_million_tokens"] == pytest.approx(row["money"] * row["goodput"] / 1e6)


def test_limits_that_nothing_meets_are_named():
    options = {"max_stage": 1, "max_context": 1, "price": 2.0, "top": 1, "tokens": "1T"}
    best = sc.plan(RUN, "dgx-h100", **options).best
    late = sc.plan(RUN, "dgx-h100", deadline=best.total_time / 2, **options)
    assert not late.plans and "the fastest, mesh" in late.error
    dear = sc.plan(RUN, "dgx-h100", budget=best.money / 2, **options)
    assert not dear.plans and "the cheapest, mesh" in dear.error


def test_several_clusters_each_have_their_best(capsys):
    options = ["--top", "2", "--set", "batch.global_batch=8", "--max-stage", "1", "--json"]
    code, out, _ = run_command(
        capsys, "plan", "gpt2-124m", "--cluster", "dgx-h100,dgx-a100", "--price", "2", *options
    )
    found = json.loads(out)
    assert code == 0 and [row["cluster"] for row in found["clusters"]] == ["dgx-h100", "dgx-a100"]
    alone = sc.plan(RUN, "dgx-a100", max_stage=1, top=1)
    assert found["clusters"][1]["prediction"]["step_time"] == pytest.approx(alone.step_time)
    assert found["constraints"] == ["--max-stage 1"] and found["plans"][0]["price"] == 2
    assert "--cluster dgx-h100 --nodes 1" in found["next"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5)), max_size=30))
def test_a_front_is_what_no_other_is_as_good_as_in_all(rows):
    figures = np.array(rows, float).reshape(-1, 3)
    kept = [tuple(figures[i]) for i in undominated(figures)]
    beats = lambda a, b: all(x <= y for x, y in zip(a, b, strict=True)) and a != b
    wanted = {
        tuple(row) for row in figures if not any(beats(tuple(o), tuple(row)) for o in figures)
    }
    assert set(kept) == wanted and len(kept) == len(wanted)


def test_the_pareto_front_is_that_of_the_whole_space(capsys, tmp_path):
    table, picture = tmp_path / "front.csv", tmp_path / "front.svg"
    options = ["--max-stage", "1", "--max-context", "1", "--price", "2", "--pareto", "--json"]
    options += ["--set", "batch.global_batch=8", "--csv", table, "--plot", picture]
    code, out, _ = run_command(capsys, "plan", "gpt2-124m", "--cluster", "dgx-h100", *options)
    found = json.loads(out)
    front = found["pareto"]
    assert code == 0 and front[0]["step_time"] == found["plans"][0]["prediction"]["step_time"]
    margins = [row["margin"] for row in front]
    assert margins == sorted(margins) and len(front) > 1  # one price: more time buys memory only
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["mesh"] for row in rows] == [row["mesh"] for row in front]
    assert "of memory is free" in picture.read_text()
    least = sc.predict(RUN, "dgx-h100", mesh=front[-1]["mesh"], source="analytic", set={
        "batch.microbatches": front[-1]["microbatches"], "remat": front[-1]["remat"],
        "sharding.zero_stage": front[-1]["zero_stage"],
    })  # fmt: skip
    assert float(least.memory.capacity - least.memory.peak) == pytest.approx(front[-1]["margin"])


def test_python_is_told_of_parameters():
    with pytest.raises(InputError, match=r"max_tensor=2 and fixed=\{'mesh.tensor': '4'\}"):
        sc.plan(RUN, "dgx-h100", max_tensor=2, fixed={"mesh.tensor": 4})
