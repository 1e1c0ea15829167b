"""Rules of thumb: what the best plan follows, and what following the others would cost."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.shape import MeshShape
from scaling.planning import search as search_module
from scaling.planning.rules import FEWEST, MEGATRON, RULES, Layout, judged, layout_of
from scaling.planning.search import PlanTarget, search
from scaling.planning.space import ChoicesBatch, all_choices
from scaling.profiles.io import profile_of
from scaling.run.recipes import recipe
from scaling.simulate.batch import timeline_of

H100 = catalog.load("dgx-h100")
RUN = replace(recipe("gpt2-124m"), mesh=None)
RUN = replace(RUN, batch=replace(RUN.batch, global_batch=8))
SIZES = st.sampled_from([1, 2, 4, 8, 16])


@cache
def target() -> PlanTarget:
    profile = profile_of(H100.accelerator)
    return PlanTarget(RUN, H100, profile, lambda seconds, devices: seconds)


@cache
def everything():
    """Layout, mesh and step time of every configuration that can run; all fit."""
    found = []
    for choice in all_choices(RUN, 4):
        if not choice.refusal:
            some = ChoicesBatch((choice,))
            seconds = timeline_of(target().program(some), target().prices).total
            runs = [choice.run(RUN, i) for i in range(choice.count)]
            times = np.broadcast_to(seconds, (choice.count,)).tolist()
            found += [(layout_of(one, 8), one.mesh, t) for one, t in zip(runs, times, strict=True)]
    return found


def test_a_rule_is_broken_if_something_that_fits_follows_it_better_and_costs_the_best_of_those():
    hit = search([(target(), all_choices(RUN, 4))], top=1).best[0]
    verdicts = [verdict for verdict, _ in judged(hit, all_choices(RUN, 4))]
    assert [verdict.rule for verdict in verdicts] == [rule.name for rule in RULES]
    own = layout_of(hit.run, 8)
    for rule, verdict in zip(RULES, verdicts, strict=True):
        rows = [
            (rule.key(layout), seconds)
            for layout, mesh, seconds in everything()
            if not rule.settings or mesh.sizes == hit.choices.mesh.sizes
        ]
        least = min(key for key, _ in rows)
        assert verdict.follows == (rule.key(own) == least)
        if verdict.cost is not None:
            best = min(seconds for key, seconds in rows if key == least)
            assert verdict.cost == pytest.approx(best / hit.value - 1)
            assert verdict.cost >= 0 and "mesh" in verdict.plan


@given(tensor=SIZES, stage=SIZES)
def test_megatron_takes_the_fewest_devices_for_a_copy_and_fills_a_node_first(tensor, stage):
    layout = lambda tensor, stage: Layout(MeshShape(tensor=tensor, stage=stage), 8, 1, 1, 0)
    key = MEGATRON.key(layout(tensor, stage))
    assert key < MEGATRON.key(layout(2 * tensor, stage)) > FEWEST.key(layout(tensor, stage))
    if tensor * stage <= 8:
        assert MEGATRON.key(layout(tensor * stage, 1)) <= key
    elif tensor > 8:
        assert MEGATRON.key(layout(8, tensor * stage // 8)) < key


def test_rules_are_judged_when_the_search_was_stopped_and_what_is_better_is_taken(monkeypatch):
    monkeypatch.setattr(search_module, "FIRST_BOUNDED", 1)
    whole, found = (sc.plan(RUN, "dgx-h100", top=1, seconds=s) for s in (None, 0))
    assert found.certificate.left and len(found.rules) == len(RULES)
    assert all(rule.cost is None or rule.cost >= 0 for rule in found.rules)
    best, least = found.step_time, whole.step_time
    assert best * (1 - found.certificate.gap) <= least <= best


def test_page_and_document_say_which_rules_the_first_plan_follows():
    found = sc.plan(RUN, "dgx-h100", nodes=1, top=1)
    document = found.to_dict()["rules"]
    assert [set(row) for row in document] == [
        {"rule", "source", "follows", "cost", "plan", "at_most"}
    ] * 7
    page = " ".join(str(found).split())
    for row in document:
        assert row["rule"] in page and row["follows"] == (row["cost"] is None)


def test_nothing_that_fits_follows_no_rule():
    found = sc.plan("llama3-405b", "dgx-h100", nodes=1)
    assert not found.plans and found.rules == ()
