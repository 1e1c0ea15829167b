"""`scaling budget`."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import scaling as sc
from scaling.meshes import catalog
from scaling.meshes.errors import InputError
from scaling.profiles.prices import KINDS, LIFE, dollars_per_hour, price_file
from scaling.questions.answer import textbook
from scaling.questions.budget.failures import Reliability, failure_answers
from tests.scaling.questions.formulas import check

DAY = 86_400.0
LLAMA = {"parameters": 70e9, "tokens": "15T"}  # as the guide rounds it
C = {"overrides": {"peak_bf16": 9.9e14, "memory": "80GB"}}
CASES = [
    {**LLAMA, "devices": 4096, "mfu": 0.45, "batch": "4M"},
    {**LLAMA, "days": 30.0, "mfu": 0.4},
    {**LLAMA, "days": 30.0, "devices": 8192, "restart_seconds": 600.0},
    {"parameters": "671B", "active": "37B", "tokens": 14.8e12, "device_hours": "2.79M"},
    {"model": "llama3-405b", "tokens": "15T", "cluster": "tpu-v5p", "devices": 71_680, "mfu": 0.4},
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_formulas_give_the_numbers(case):
    check(sc.budget(**case))


def test_the_guides_training_of_llama_3_70b():
    answer = sc.budget(**LLAMA, **C, devices=4096, mfu=0.45, batch="4M", mesh="tensor=8,data=512")
    assert float(answer) / DAY == pytest.approx(39.96, rel=1e-3)
    assert float(answer["fewest devices for weights and optimizer"]) == 9
    assert float(answer["weights and optimizer on a device"]) == 87.5e9
    assert float(answer["tokens of a device"]) == 976.5625


def test_time_devices_and_mfu_are_the_same_relation():
    days = float(sc.budget(**LLAMA, devices=4096, mfu=0.45)) / DAY
    assert float(sc.budget(**LLAMA, devices=4096, days=days)) == pytest.approx(0.45)
    assert float(sc.budget(**LLAMA, days=days * 1.0001, mfu=0.45)) == 4096
    hours = 24 * days * 4096
    assert float(sc.budget(**LLAMA, device_hours=hours)) == pytest.approx(0.45)


def test_tokens_and_parameters_follow_from_the_rest():
    days = float(sc.budget(**LLAMA, devices=4096, mfu=0.45)) / DAY
    case = {"devices": 4096, "mfu": 0.45, "days": days}
    assert float(check(sc.budget(parameters=70e9, **case))) == pytest.approx(15e12)
    assert float(check(sc.budget(tokens="15T", **case))) == pytest.approx(70e9)
    hours = {"device_hours": 24 * days * 4096, "mfu": 0.45}
    assert float(check(sc.budget(parameters=70e9, **hours))) == pytest.approx(15e12)


def test_devices_follow_from_the_batch():
    answer = sc.budget(**LLAMA, cluster="tpu-v5p", batch="16M", tokens_per_device=850.0, mfu=0.5)
    assert float(answer) / DAY == pytest.approx(16.88, rel=1e-3)
    pods = sc.budget(**LLAMA, cluster="tpu-v5p", batch="40M", tokens_per_device=850.0, mfu=0.5)
    assert float(pods["slices"]) == pytest.approx(5.25, rel=1e-3)


def test_the_mfu_is_that_of_the_best_plan():
    answer = check(sc.budget("gpt2-124m", "10B", mesh="fsdp=8"))
    plan = sc.plan("gpt2-124m", "dgx-h100", mesh="fsdp=8", top=1, tokens=10e9).plans[0]
    assert float(answer["training with failures"]) == pytest.approx(plan.total_time)
    with_failures = lambda name: float(answer[f"{name} with failures"])
    assert with_failures("device hours") == pytest.approx(plan.device_hours)
    assert with_failures("money") == pytest.approx(plan.money)
    assert with_failures("energy") == pytest.approx(plan.energy / 3.6e6)
    assert answer["energy"].high / float(answer["energy"]) == pytest.approx(
        plan.energy_range[1] / plan.energy
    )
    assert answer.ideal < answer.fitted
    assert "is predicted for" in answer.notes[0]
    assert float(textbook(answer)["device hours"]) == pytest.approx(answer.ideal * 8 / 3600)


def test_what_cannot_be_planned_has_its_reason():
    assert "nothing fits" in sc.budget("llama3-405b", "1T", devices=8).notes[0]
    assert "less than a sequence" in sc.budget("llama3-8b", "1T", batch=100).notes[0]
    assert "no whole nodes" in sc.budget("llama3-8b", "1T", devices=12).notes[0]


def parts(hours: float, save: float, restart: float = 0.0, devices: int = 1000) -> dict:
    how = Reliability(hours, save, restart)
    return {a.name: float(a) for a in failure_answers(how, devices, (1e6, None), 1e12)}


def test_young_and_daly_meet_where_saves_are_short():
    short, long = parts(1e4, 1e-3), parts(1e4, 7200.0)
    assert short["checkpoint interval, Daly"] == pytest.approx(
        short["checkpoint interval, Young"], rel=1e-3
    )
    assert long["checkpoint interval, Daly"] < long["checkpoint interval, Young"]
    assert short["failures"] == pytest.approx(1e6 / (1e4 * 3.6))


def test_dalys_interval_has_the_best_goodput():
    """The interval of the formula against all others, by his model of the whole time."""
    for save in (1.0, 60.0, 600.0):
        found = parts(5e4, save, 300.0)
        M = found["time between failures"]
        good = lambda tau, s=save, M=M: tau / (M * math.exp(300 / M) * math.expm1((tau + s) / M))
        best = max(good(tau) for tau in range(10, 40_000, 10))
        assert found["goodput"] == pytest.approx(best, rel=1e-4)


def test_more_devices_fail_more_often_until_nothing_is_trained():
    goods = [parts(5e4, 60.0, 60.0, n)["goodput"] for n in (10, 1000, 100_000, 10_000_000)]
    assert goods == sorted(goods, reverse=True)
    assert goods[-1] == 0.0
    assert parts(1e-6, 1.0, 1e12)["goodput"] == 0.0


def test_every_price_has_a_chip_and_a_source():
    table = price_file()
    assert {row.accelerator for row in table.prices} <= set(catalog.accelerator_names())
    assert {row.source for row in table.prices} == table.sources.keys()
    assert {row.kind for row in table.prices} <= set(KINDS) and all(table.sources.values())
    unpriced = "cpu gb300 mi250x-gcd p100-sxm tpu7x trainium2 v100-sxm-32g"
    priced = {row.accelerator for row in table.prices}
    assert set(catalog.accelerator_names()) - priced == set(unpriced.split())


def test_a_price_is_the_median_of_the_newest_year_between_its_ends():
    chip = lambda name: catalog.load(name).accelerator
    price = {kind: dollars_per_hour(chip("dgx-h100"), kind) for kind in KINDS}
    found = {kind: (each.low, each.default, each.high) for kind, each in price.items()}
    assert found == {
        "on-demand": (1.99, 2.95, 10.8),  # as of 37 providers, who outweigh five lists
        "contract": (2.35, 2.35, 2.35),  # not those of 2024 and 2025
        "spot": (0.8015, (0.8015 + 1.25) / 2, 1.25),
        "purchase": (30_000 / LIFE,) * 3,
    }
    assert (
        dollars_per_hour(chip("dgx-h100")) == price["on-demand"]
        and price["on-demand"].date == "2026"
    )
    assert dollars_per_hour(chip("mi250x-8")) is None
    with pytest.raises(InputError, match="nobody states such a price of tpu-v5e.*on-demand"):
        dollars_per_hour(chip("tpu-v5e"), "spot")
    money = sc.budget("llama3-8b", "1T", devices=64, mfu=0.4)["money"]
    assert money.low < float(money) < money.high
    assert sc.budget("llama3-8b", "1T", "mi250x-8", mfu=0.4)["money"].answer is None


ONE = {"parameters": 1e9, "tokens": "1T"}
BAD = {
    "tokens says how long": {"parameters": 1e9, "mfu": 0.4},
    "or ask for the most parameters": {"tokens": "1T", "devices": 8},
    "name a model": {},
    "not both": {"model": "llama3-8b", **ONE},
    "is not a count": {"parameters": "many"},
    "tokens=0": {"parameters": 1e9, "tokens": 0.0},
    "leave model out": {"model": "llama3-8b", "active": 1e9, "mfu": 0.4},
    "active='2B' exceeds the 1B": {**ONE, "active": 2e9},
    "state mfu": {"parameters": 1e9, "tokens": "1T", "days": 3.0},
    "leave out mfu": {"parameters": 1e9, "tokens": "1T", "days": 3.0, "devices": 8, "mfu": 0.4},
    "give one of them": {"parameters": 1e9, "tokens": "1T", "days": 3.0, "device_hours": 5.0},
    "different numbers of devices": {**ONE, "devices": 8, "nodes": 2},
    "mfu=1.4": {**ONE, "mfu": 1.4},
    "devices=0": {**ONE, "devices": 0, "mfu": 0.4},
    "at most 10,000,000": {**ONE, "devices": 10**9, "mfu": 0.4},
    "larger batch": {"parameters": 1e9, "tokens_per_device": 850.0},
    "save_seconds": {**ONE, "save_seconds": -1.0},
    "no peak rate for": {**ONE, "compute": "int3"},
    "did you mean 'peak_bf16'": {**ONE, "overrides": {"peak_bf1": 1e15}},
    "did you mean 'dgx-h100'": {**ONE, "cluster": "dgx-h10"},
    "bytes_per_parameter": {**ONE, "bytes_per_parameter": math.nan},
    "allow more days": {**ONE, "days": 1e-9, "mfu": 0.4},
    "days inf": {**ONE, "days": math.inf, "mfu": 0.4},
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_one_message(message):
    with pytest.raises(InputError, match=message):
        sc.budget(**BAD[message])


def test_epochs_follow_from_a_measured_step():
    """Four V100: 1.06 s for 128 samples, 19,257 steps and 5.67 hours an epoch, as reported."""
    asked = {"samples": 2_464_845, "epochs": 10, "cluster": "dgx-station-v100"}
    answer = sc.budget(**asked, batch=128, step_time="1.06s")
    assert answer["steps of an epoch"].answer == 19_257
    assert float(answer["an epoch"]) / 3600 == pytest.approx(5.67, abs=5e-3)
    assert float(answer) == pytest.approx(10 * float(answer["an epoch"]))
    assert float(answer["device hours"]) == pytest.approx(float(answer) * 4 / 3600)
    twice = sc.budget(**asked, batch=256, step_time="1.06s")
    assert float(twice) == pytest.approx(float(answer) / 2, rel=1e-4)


@given(samples=st.integers(1000, 10**7), batch=st.integers(1, 1000), epochs=st.integers(1, 9))
@settings(max_examples=8, deadline=None)
def test_samples_of_a_model_are_its_sequences(samples, batch, epochs):
    """A measured step says as long as its tokens would, and an MFU that gives that time back."""
    asked = {"cluster": "dgx-a100", "devices": 8}
    by_samples = sc.budget(
        "gpt2-124m", samples=samples, epochs=epochs, batch=batch, step_time=10.0, **asked
    )
    steps = float(by_samples["steps"])
    assert steps == epochs * -(-samples // batch) and float(by_samples) == pytest.approx(steps * 10)
    tokens = steps * batch * 1024  # of whole steps
    by_tokens = sc.budget("gpt2-124m", tokens=tokens, batch=batch * 1024, step_time=10.0, **asked)
    assert float(by_tokens) == pytest.approx(float(by_samples))
    assert float(by_tokens["MFU"]) == pytest.approx(float(by_samples["MFU"]))


@pytest.mark.parametrize(
    "asked, what",
    [
        ({"samples": 5, "step_time": 1}, "needs the .*batch"),
        ({"samples": 5, "batch": 10, "step_time": 1}, "more than an epoch has"),
        ({"samples": 5, "tokens": 3}, "give one of them"),
        (
            {"samples": 9, "batch": 3, "step_time": 1, "parameters": "7B", "active": "8B"},
            "8B.* exceeds",
        ),
        ({"epochs": 3, "model": "gpt2-124m"}, "need .*samples"),
        ({"samples": 10**6}, "unknown length"),
        ({"samples": 10**6, "batch": 8, "step_time": 1, "mfu": 0.4}, "leave out .*mfu"),
    ],
)
def test_samples_that_do_not_belong_together_are_refused(asked, what):
    with pytest.raises(InputError, match=what):
        sc.budget(**asked)


@pytest.mark.parametrize("fixed", [{"mfu": 0.4}, {"days": 30, "devices": 512}])
def test_tokens_that_are_seen_often_are_as_many_tokens(fixed):
    often = sc.budget("llama3-8b", tokens="1T", epochs=3, **fixed)
    assert float(often) == pytest.approx(float(sc.budget("llama3-8b", tokens="3T", **fixed)))


def test_a_save_at_a_measured_step_writes_the_parameters():
    asked = {"parameters": "70B", "samples": 10**6, "batch": 128, "step_time": 1.0}
    assert float(sc.budget(**asked)["save"]) == pytest.approx(70e9 * 10 / 2e12)


def test_without_tokens_the_answer_is_what_holds_the_model():
    assert sc.budget(parameters="70B").answer == 9  # 700 GB among 80 GiB


def test_a_bought_device_is_paid_over_its_years():
    asked = {**LLAMA, "devices": 4096, "mfu": 0.45}
    bought = sc.budget(**asked, price_kind="purchase")["money"]
    share = float(sc.budget(**asked)["device hours"]) / (4096 * 5 * 8766)  # of five years of all
    assert float(bought) == pytest.approx(4096 * 30_000 * share)
