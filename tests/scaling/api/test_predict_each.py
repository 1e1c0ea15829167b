"""Many runs at once: each gets the very prediction, or the refusal, that it gets alone."""

import numpy as np
import pytest

import scaling as sc
from experiments.published.training import measured_runs
from scaling.api import pricing
from scaling.api.predict import predict_each
from scaling.api.result import PredictionResult
from scaling.run import read_run

EVERY = 30  # of the published runs one is priced here; nine sources are among them
OURS = (
    ("gpt2-124m", "dgx-h100", "data=2,fsdp=4"),
    ("gpt2-124m", "dgx-h100", "data=4,fsdp=2"),
    ("gpt2-124m", "dgx-a100", "stage=2,tensor=2,fsdp=2"),
    ("gpt2-124m", "tpu-v5p", "fsdp=2,tensor=2"),
    ("llama3-8b", "dgx-h100", "context=2,tensor=4"),
    ("mixtral-8x7b", "dgx-h100", "expert=8"),
)


def told(run, **options):
    """The document of a run that is predicted alone, or the words of its refusal."""
    try:
        return sc.predict(run, **options).to_dict()
    except sc.InputError as error:
        return str(error)


def told_each(runs, **options):
    found = predict_each(runs, **options)
    return [p.to_dict() if isinstance(p, PredictionResult) else str(p) for p in found]


@pytest.fixture(scope="module")
def published():
    return [read_run(row.run, row.id) for row in measured_runs()[::EVERY]]


def test_published_runs_of_all_clusters_and_software_get_what_they_get_alone(published):
    assert told_each(published) == [told(run) for run in published]


@pytest.mark.parametrize("what_if", [(), ("network x2", "launch x3")])
def test_so_do_the_trainers_own_on_meshes_of_any_axes(what_if):
    options = {"source": "analytic", "what_if": what_if}
    runs = [
        sc.load_run(name, mesh=mesh, set={"cluster": {"name": cluster}, "remat": "full"})
        for name, cluster, mesh in OURS
    ]
    assert told_each(runs, **options) == [told(run, **options) for run in runs]


def test_a_refused_run_and_one_that_we_fail_at_cost_no_other_its_price(published, monkeypatch):
    broken, price_all = published[3].name, pricing.price_all

    def failing(places):
        places = list(places)
        if any(program.name == broken for program, *_ in places):
            raise ZeroDivisionError
        return price_all(places)

    monkeypatch.setattr(pricing, "price_all", failing)
    unknown = sc.load_run("gpt2-124m", set={"cluster": {"name": "dgx-h100"}}, mesh="data=16")
    runs = [*published[:5], unknown, *published[5:8]]
    found = list(predict_each(runs))
    assert isinstance(found[3], ZeroDivisionError)
    assert isinstance(found[5], sc.InputError) and "16 devices" in str(found[5])
    others = [p for i, p in enumerate(found) if i not in (3, 5)]
    assert [p.name for p in others] == [r.name for i, r in enumerate(runs) if i not in (3, 5)]
    assert np.all([p.step_time > 0 for p in others])
