"""What remat "auto" stands for: one answer for every command, with its reason."""

from dataclasses import replace

import pytest

import scaling as sc
from scaling.analytic.step import policies
from scaling.meshes.errors import InputError
from scaling.models.accounting.remat import AUTO, kept_by
from scaling.planning.remat import UNKNOWN, with_remat
from scaling.run.document import save_run
from scaling.run.parallelism.rules import zero_stage
from scaling.simulate.prediction import CROWDED
from scaling.simulate.resolve import target

BATCH = {"batch.global_batch": 32, "batch.microbatches": 4, "remat": AUTO}
WHERE = {"cluster": "dgx-h100", "source": "analytic"}


def each_policy(mesh: str, **where) -> dict[str, sc.Prediction]:
    """The closed form of every policy, each priced by itself."""
    run = sc.load_run("llama3-8b", mesh=mesh, set=BATCH)
    prices = (sc.predict(replace(run, remat=p), **WHERE, **where) for p in policies(run))
    return dict(zip(map(str, policies(run)), prices, strict=True))


@pytest.mark.parametrize("mesh", ["fsdp=8", "stage=4,fsdp=2"])
def test_the_fastest_that_fits_is_taken_by_predict_and_plan_alike(mesh):
    found = sc.predict("llama3-8b", mesh=mesh, set=BATCH, **WHERE)
    fitting = {name: p for name, p in each_policy(mesh).items() if p.memory.fits}
    best = min(fitting, key=lambda name: fitting[name].step_time)
    run = found.pricing.run
    assert str(run.remat) == best and f"remat auto: {best} takes" in str(found)
    assert float(found.step_time) == pytest.approx(float(fitting[best].step_time))
    fixed = {"batch.microbatches": 4, "sharding.zero_stage": zero_stage(run, run.mesh)}
    plan = sc.plan("llama3-8b", "dgx-h100", mesh=mesh, set=BATCH, fixed=fixed)
    assert plan.best.run.remat == run.remat


def test_near_the_limit_nothing_counts_as_hidden():
    """So that what leaves XLA room to hide collectives beats what is faster by its closed form."""
    every = each_policy("fsdp=4,tensor=2")
    fastest = min(every.values(), key=lambda p: p.step_time)
    share = float(fastest.memory.peak) / float(fastest.memory.capacity)
    memory = share / ((1 + CROWDED) / 2) * sc.load_cluster("dgx-h100").accelerator.memory
    where = {"overrides": {"memory": memory}}
    every = each_policy("fsdp=4,tensor=2", **where)

    def expected(name: str) -> float:
        p = every[name]
        crowded = p.memory.peak > CROWDED * p.memory.capacity
        return float(p.step_time + p.time.hidden_communication * crowded)

    best = min((n for n, p in every.items() if p.memory.fits), key=expected)
    found = sc.predict("llama3-8b", mesh="fsdp=4,tensor=2", set=BATCH, **WHERE, **where)
    assert str(found.pricing.run.remat) == best
    assert every[best].step_time > min(p.step_time for p in every.values() if p.memory.fits)


def test_where_none_fits_it_is_the_least_and_on_unknown_chips_a_stated_one():
    place = target(sc.load_run("llama3-405b", mesh="fsdp=8", set={"remat": AUTO}), "dgx-h100")
    run, reason = with_remat(place.run, place.mesh, place.cluster)
    assert run.remat == "full" and "does not fit, by closed form the least" in reason
    assert with_remat(place.run, place.mesh, None)[0].remat == UNKNOWN
    host = target(sc.load_run("tiny", mesh="fsdp=2", set={"remat": AUTO}), "host")
    assert with_remat(host.run, host.mesh, host.cluster)[0].remat == UNKNOWN
    with pytest.raises(InputError, match="state a policy"):
        kept_by(AUTO)


def test_a_resumed_run_keeps_what_was_chosen_on_its_mesh_and_batch(tmp_path):
    from scaling.training.run_folder.folder import Options
    from scaling.training.starting import on_devices

    run = sc.load_run("tiny", mesh="fsdp=2", set={"remat": AUTO})
    save_run(replace(run, remat="full"), tmp_path / "run.json")
    again = Options(tmp_path, resume=True)
    assert on_devices(run, again, 2)[0].remat == "full"
    assert on_devices(replace(run, batch=sc.Batch(16, 32)), again, 2)[0].remat == AUTO
    assert on_devices(replace(run, remat="none"), again, 2)[0].remat == "none"
