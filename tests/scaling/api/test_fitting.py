"""A recipe that does not fit takes the first batch split and remat that do, and says so."""

import pytest

import scaling as sc
from scaling.api import calibrate
from scaling.planning.fitting import fitting_runs
from scaling.simulate.resolve import target

WHERE = {"cluster": "dgx-h100", "mesh": "fsdp=8", "source": "analytic"}
OWN = {"batch.microbatches": 8}


def test_a_recipe_that_does_not_fit_takes_more_microbatches_and_says_so():
    own = sc.predict("llama3-8b", set=OWN, **WHERE)
    found = sc.predict("llama3-8b", **WHERE)
    assert (own.memory.fits, found.memory.fits) == (False, True)
    assert own.pricing.run.batch.microbatches == sc.load_run("llama3-8b").batch.microbatches == 8
    assert found.pricing.run.batch.microbatches == 32
    (said,) = found.warnings
    assert said.startswith("batch.microbatches=32, as the recipe's own step does not fit")
    assert "set={'batch.microbatches': 8} prices that" in said
    assert found.pricing.request.words("predict").endswith("set={'batch.microbatches': 32})")


@pytest.mark.parametrize(
    "run",
    [
        sc.load_run("llama3-8b"),
        {"name": "mine", "model": "llama3-8b", "batch": {"global_batch": 512, "seq_len": 8192}},
    ],
    ids=["Run", "run.json"],
)
def test_a_run_that_is_described_whole_is_never_changed(run):
    found = sc.predict(run, **WHERE)
    assert found.memory.fits is False
    assert found.pricing.run.batch == sc.load_run(run).batch


@pytest.mark.parametrize("key", ["batch.microbatches", "batch.global_batch", "remat"])
def test_a_setting_of_batch_or_remat_leaves_both_as_they_are(key):
    values = {"batch.microbatches": 8, "batch.global_batch": 512, "remat": "selective"}
    found = sc.predict("llama3-8b", set={key: values[key]}, **WHERE)
    assert found.memory.fits is False and found.pricing.run.batch.microbatches == 8


def test_a_recipe_that_fits_or_cannot_fit_is_priced_as_it_is():
    fits = sc.predict("llama3-8b", "dgx-h100", 8, source="analytic")
    never = sc.predict("llama3-405b", **WHERE)
    assert fits.memory.fits and not fits.warnings
    assert never.memory.fits is False
    for found in (fits, never):
        assert found.pricing.run.batch == sc.load_run(found.name).batch


def test_microbatches_grow_before_remat_does():
    place = target(sc.load_run("llama3-8b", mesh="fsdp=8"), "dgx-h100")
    found = [
        (run.batch.microbatches, run.remat)
        for run, _ in fitting_runs(place.run, place.mesh, place.cluster)
    ]
    assert found == [(32, "selective"), (64, "selective"), *((n, "full") for n in (8, 16, 32, 64))]


@pytest.mark.parametrize("ask", [sc.predict, sc.plan])
def test_without_a_cluster_a_machine_that_was_never_measured_is_not_measured(ask, monkeypatch):
    monkeypatch.setattr("scaling.api.runs.host_calibration", lambda devices: None)
    fail = lambda devices: pytest.fail("measured")
    monkeypatch.setattr(calibrate, "calibrate_in_subprocess", fail)
    with pytest.raises(sc.InputError, match="Name one, such as cluster='dgx-h100'"):
        ask("tiny")


def test_a_chip_without_flash_attention_for_a_model_is_said():
    """On the page and in the document; a model whose attention it has gets no such line."""
    few = {"batch": {"global_batch": 8, "seq_len": 2048}}
    said = "attention stores its scores: cuDNN's flash attention has no softcap (score_softcap=50)"
    capped = sc.predict("gemma-2-2b", set=few, **WHERE)
    assert said in capped.warnings and said in str(capped)
    assert said in capped.to_dict()["warnings"]
    assert not any("stores" in line for line in sc.predict("gemma-3-1b", set=few, **WHERE).warnings)
