"""What lessons and labs claim, of today's engine: a claim that no longer holds fails by its name.

Each test takes what the cells of its notebook define.
"""

import math
from statistics import median

import pytest

import scaling as sc
from scaling.course.lessons import lab1_programs, lab2_model, lab4_errata, lab5_sweeps
from scaling.course.lessons.lab3_testbed import line_over_rates
from scaling.course.quizzes.command_lines import document_of
from scaling.course.sweeps.game import TRIES
from scaling.pictures.arrays import parts as parts_of_devices
from scaling.pictures.pipeline import idle_share, timetable
from scaling.pictures.ring import frames
from scaling.questions.answer import by_formula
from tests.scaling.course.lessons.notebooks import NOTEBOOKS, of


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_has_a_claim_that_is_tested(name):
    with open(__file__, encoding="utf-8") as file:
        assert f'@of("{name}")' in file.read()


@of("lesson_01")
def test_the_critical_batch_is_the_guides(critical):
    assert 150 < critical.ideal < 320


@of("lesson_01")
def test_arithmetic_binds_earlier_with_kernels_as_measured(critical):
    assert critical.fitted < critical.ideal


@of("lesson_01")
def test_small_products_fill_fewer_cores_and_large_ones_stay_below_the_peak(shares):
    assert shares == sorted(shares)
    assert shares[0] < 0.5 < shares[-1] < 0.9


@of("lesson_02")
def test_every_block_has_as_many_holders_as_copies(chosen, mesh, written):
    held = [(part.row, part.column) for part in parts_of_devices(written, mesh)]
    assert {held.count(block) for block in held} == {chosen["copies"].answer}


@of("lesson_02")
def test_slices_are_free_and_a_sum_costs_twice_a_gather(arrivals, moved):
    assert arrivals["A[I_X,J] -> A[I_X,J_Y]"] == moved["A[I_X,J] -> A[I_X,J_Y]"] == 0
    scattered, summed = "A[I,J] {U_X} -> A[I_X,J]", "A[I,J] {U_X} -> A[I,J]"
    assert abs(arrivals[summed] / arrivals[scattered] - 2) < 1e-9


@of("lesson_02")
def test_mistakes_show(silent, uneven):
    assert silent["copies"].answer == 4
    assert "cannot be split evenly" in uneven


@of("lesson_02")
def test_a_small_array_takes_longer_than_its_bytes(short):
    assert short > 2


@of("lesson_03")
def test_the_ring_takes_the_textbooks_time(cluster, inside, size):
    steps = len(frames("all-gather", inside.ranks)) - 1
    link = inside.levels[0].bandwidth
    ideal = sc.price_collective("all-gather", size, cluster, ideal=True)
    assert abs(steps * size / inside.ranks / link / ideal.time - 1) < 1e-9


@of("lesson_03")
def test_limits_of_a_price(cluster, far, ring, rule):
    pair = sc.price_collective("all-gather", 2**30, cluster, devices="0,1", ideal=True)
    assert pair.time < rule[0].time < 2 * pair.time
    assert rule[0].time == rule[1].time
    assert "NIC" in far.bottleneck and ring.algorithm == "ring"


@of("lesson_03")
def test_the_line_is_the_sweeps(best, ladders, sweep, yours):
    assert best.worst(sweep) < 0.05 < yours.worst(sweep)
    assert 100e-6 < best.alpha < 200e-6 and 350e9 < best.bandwidth < 450e9
    assert ladders[0]["measured"].value and ladders[1]["measured"].value is None


@of("lesson_03")
def test_an_all_to_all_over_two_nodes_takes_longer_and_an_all_gather_does_not(
    cluster, one_node, size, two_nodes
):
    gathers = [
        sc.price_collective("all-gather", size, cluster, nodes=n, ideal=True).time for n in (1, 2)
    ]
    assert two_nodes > 2 * one_node
    assert abs(gathers[1] / gathers[0] - 1) < 0.1


@of("lesson_03")
def test_a_small_call_takes_orders_of_magnitude_longer_than_the_textbook_says(shortest):
    assert shortest > 10


@of("lesson_04")
def test_the_rungs_rise(exact, executed, rule, weighed):
    found = [3 * weighed, rule.answer, exact.answer, executed[0]]
    known = [value for value in found if value is not None]
    assert known == sorted(known)


@of("lesson_04")
def test_the_formula_that_was_derived_counts_all_products(exact, figures):
    derived = by_formula("training", "FLOPs", "6*P + 12*T*N*H*L", figures).answer
    assert abs(derived / exact.answer - 1) < 1e-9


@of("lesson_04")
def test_no_measured_step_beats_the_peak(shares):
    assert all(0.3 < share < 0.6 for share in shares)


@of("lesson_05")
def test_shards_hold_less_than_replicas(bytes_rows, step_rows):
    held_by = {row["mesh"]: row["weights, moments (bytes)"] for row in step_rows}
    assert held_by["fsdp=8"] < 0.2 * held_by["data=8"]
    sums = {row["mesh"]: row["all-gather (bytes)"] for row in bytes_rows}
    assert sums["fsdp=8"] > sums["data=8"] == 0


@of("lesson_05")
def test_small_gathers_take_nearly_as_long_as_larger_ones(gathers):
    seen_ = [row["measured (s)"] for row in gathers]
    assert seen_[1] < 1.5 * seen_[0]


@of("lesson_05")
def test_a_step_with_enough_tokens_is_still_slower_than_the_textbook(needed, of_device, published):
    assert of_device > needed
    assert published["measured"].value > published["textbook"].value


@of("lesson_06")
def test_the_rule_is_the_limit_of_a_long_axis(limit, per_node):
    """(Y - 1) / Y of the bytes travel in a node of Y chips; of a long axis all of them do."""
    assert abs(limit.ideal * (per_node - 1) / per_node / limit["rule"].ideal - 1) < 1e-9


@of("lesson_06")
def test_exchanges_of_eight_chips_wait_and_the_step_is_longer_than_that_of_fsdp(longer, waits):
    assert waits > 0.3 and longer > 1


@of("lesson_06")
def test_eight_chips_are_slower_than_four_in_sixteen_microbatches_and_predicted_too_fast(compared):
    few, many = compared[:3], compared[3:]
    assert min(few, key=lambda row: row["measured (s)"])["chips"] == 8
    assert many[2]["measured (s)"] > many[1]["measured (s)"] > many[2]["predicted (s)"] * 0.8
    assert many[2]["predicted (s)"] < 0.8 * many[2]["measured (s)"]


@of("lesson_06")
def test_on_a_b200_the_nics_bind_first(over_two):
    assert "NIC" in over_two["link"]


@of("lesson_07")
def test_plain_fsdp_is_the_fastest_of_these_splits_on_h100(on_h100, whole):
    assert min(on_h100, key=lambda mesh: on_h100[mesh].step_time) == whole.mesh


@of("lesson_07")
def test_by_its_time_plain_fsdp_wins_with_fewer_tokens_than_by_its_bytes(faster, least):
    assert faster < least


@of("lesson_07")
def test_every_prediction_lies_in_its_range(errors):
    assert all(row["low (s)"] <= row["predicted (s)"] <= row["high (s)"] for row in errors)


@of("lesson_08")
def test_the_limit_is_that_of_a_dense_model_times_experts_over_active(dense, limits, moe):
    assert abs(limits.ideal / dense.ideal - moe.n_experts / moe.experts_per_token) < 1e-6


@of("lesson_09")
def test_the_drawing_has_the_bubble_of_the_formula(bubble):
    """Counted from the timetable, and from the formula of `scaling limits`."""
    cases = [
        (*kind, *size)
        for kind in (("gpipe", 1), ("1f1b", 1), ("interleaved", 2))
        for size in ((2, 8), (4, 8), (8, 16))
    ]
    for name, each, rows_drawn, count in cases:
        counted = idle_share(timetable(name, rows_drawn, count, each))
        assert abs(counted - bubble(rows_drawn, count, each).ideal) < 1e-12


@of("lesson_09")
def test_activations_hide_behind_products(forward, hop):
    assert hop.fitted < forward


@of("lesson_09")
def test_two_parts_of_a_stage_halve_the_bubble(bubble):
    assert bubble(8, 64, 2).ideal < 0.53 * bubble(8, 64).ideal


@of("lesson_09")
def test_the_fastest_published_run_has_not_the_most_microbatches(middle):
    assert min(middle, key=middle.get) < max(middle)


@of("lesson_10")
def test_the_ring_across_nodes_needs_longer_chunks(across, hidden, inside):
    assert hidden.ideal == across["textbook (tokens)"] > 4 * inside["textbook (tokens)"]
    assert hidden.ideal > across["fitted (tokens)"] > inside["fitted (tokens)"]


@of("lesson_10")
def test_mfu_passes_one_half_where_the_masked_half_is_counted(mfu):
    assert max(mfu) > 0.5


@of("lesson_11")
def test_less_kept_is_less_memory_and_more_time(steps):
    peaks = [steps[name].memory.peak for name in ("none", "selective", "full")]
    assert peaks == sorted(peaks, reverse=True)
    assert steps["full"].step_time > steps["none"].step_time


@of("lesson_11")
def test_state_and_what_is_kept_are_nearly_all_of_the_peak(counted, steps):
    assert 0.9 < counted.answer / steps["none"].memory.peak < 1


@of("lesson_11")
def test_the_walk_is_within_a_few_percent_of_the_compilers_plan(rows):
    for row in rows:
        assert abs(row["peak (bytes)"] / row["XLA's plan (bytes)"] - 1) < 0.05


@of("lesson_12")
def test_halving_the_cable_does_not_double_the_step(foretold, grew):
    assert 1 < grew < 2
    assert abs(foretold / grew - 1) < 0.05


@of("lesson_12")
def test_the_wrong_prediction_lacks_what_is_paid_for_each_call(held, missing, settings):
    """FLOPs and bytes are those of a step that is predicted well; calls are eight times as many."""
    priced = [step for _, step in settings.values()]
    well, wrong_ = priced[2], priced[-1]
    moved = [sum(float(c.bytes * c.count) for c in one.collectives) for one in (well, wrong_)]
    assert abs(moved[0] / moved[1] - 1) < 1e-9
    assert abs(well.model_flops / wrong_.model_flops - 1) < 1e-9
    assert abs(held[2]["predicted (s)"] / held[2]["measured (s)"] - 1) < 0.1
    assert held[-1]["predicted (s)"] / held[-1]["measured (s)"] < 0.8
    assert 1e-4 < missing < 1e-3


@of("lesson_12")
def test_measured_and_predicted_lie_together(steps):
    assert all(step.low <= step.median <= step.high for step in steps)


@of("lesson_12")
def test_the_textbook_rung_is_the_prediction_without_what_hides(doubled, foretold):
    assert abs(doubled / foretold - 1) < 0.1


@of("lesson_13")
def test_more_than_6_nd_never_takes_less(budget, count, tokens):
    flops = 6 * count.answer * tokens
    assert abs(budget["FLOPs"].answer / flops - 1) < 0.02


@of("lesson_13")
def test_the_days_are_those_of_the_steps(best, budget, tokens):
    steps_ = tokens / best.run.batch.tokens
    assert abs(float(budget) / (steps_ * float(best.prediction.step_time)) - 1) < 1e-6


@of("lesson_13")
def test_the_best_plan_is_not_slower_than_the_others(found):
    times_ = [float(plan.prediction.step_time) for plan in found.plans]
    assert times_[0] <= min(times_) * 1.05


@of("lab_1")
def test_the_written_mlp_moves_hidden_and_not_the_result(meant, more, written):
    assert {row["collective"] for row in meant} == {"all-reduce"}
    assert {row["collective"] for row in written} == {"all-gather"}
    assert more == 5


@of("lab_1")
def test_guilty_steps_move_more_than_meant_by_a_line_that_xla_names_and_innocent_ones_have_none(
    listed,
):
    for _case in listed:
        moved = lab1_programs.size_of(lab1_programs.moved(_case, _case.written))
        if _case.meant:
            assert {_case.line, _case.line - 1} & set(_case.lines.values())  # XLA's, or the next
            assert moved > 1.5 * lab1_programs.size_of(lab1_programs.moved(_case, _case.meant))
        else:
            assert _case.line is None
            assert _case.cause == "nothing is wrong"


@of("lab_1")
def test_every_finding_of_the_trainers_steps_is_an_answer_and_three_are_clean(answers, trained):
    truths = [one.discrepancy.reason if one.discrepancy else None for one in trained]
    assert set(truths) <= set(answers.values())
    assert truths.count(None) == 3


@of("lab_2")
def test_both_machines_saw_the_same_samples(machines):
    assert abs(machines[0].samples / machines[1].samples - 1) < 1e-6


@of("lab_2")
def test_at_the_stated_length_the_old_machine_is_impossible(full, new, old, ratio, seen):
    assert old.step() < float(full[old.name].step_time)
    assert new.step() > float(full[new.name].step_time)
    assert ratio > 1.5 * seen


@of("lab_2")
def test_the_solution_gives_both_measurements_back(placed, software, solved):
    mean_, rest_ = solved
    for machine in placed:
        left = lab2_model.outside(machine, round(mean_), software.value)
        assert abs(left - rest_) / machine.step() < 0.05


@of("lab_2")
def test_every_assumption_leaves_short_samples_and_a_rest_longer_than_the_work(
    ends, length, new, sensitivity
):
    assert max(ends) < length / 2
    outside = [row["outside (s)"] for row in sensitivity if row["outside (s)"]]  # else impossible
    assert len(outside) > 1 and min(outside) > new.step() / 2 > 0.1


@of("lab_2")
def test_no_other_way_is_faster_at_the_same_batch(as_is, changed, rate, whole_batch):
    now = rate(whole_batch, True, as_is)
    assert all(rate(whole_batch, True, found) < now for found in changed.values())


@of("lab_3")
def test_halving_the_cable_is_not_doubling_the_step(fsdp):
    assert 1.2 < fsdp[1].median / fsdp[0].median < 2


@of("lab_3")
def test_the_survivor_hardly_grows_and_fsdp_does_most(best, grew, last):
    assert best == "stage=4"
    assert max(grew, key=grew.get) == "fsdp=4"
    assert last["stage=4"] < last["data=4"] / 1.5


@of("lab_3")
def test_two_rates_foretell_the_third(of_mesh):
    for mesh in ("data=4", "fsdp=4", "data=2,tensor=2"):
        first, second, third = of_mesh[mesh]
        fixed, sent_ = line_over_rates([first.median, second.median], [first.rate, second.rate])
        assert abs((fixed + sent_ / third.rate) / third.median - 1) < 0.1


@of("lab_3")
def test_the_gradients_of_replicas_are_most_of_their_step(alone, of_mesh):
    assert 0.7 < alone / of_mesh["data=4"][-1].median < 1


@of("lab_4")
def test_each_exhibit_has_the_mistake_that_its_factor_betrays(every):
    for one in every:
        wanted = one.question.mistakes
        if wanted:
            assert wanted[0].startswith(one.cause)
        else:
            assert one.cause in (lab4_errata.OTHER, lab4_errata.NOTHING)


@of("lab_4")
def test_there_are_many_kinds_and_one_that_is_right(every, halves, named):
    assert len(every) >= 15
    assert len({one.cause for one in every}) >= 8
    assert any(one.cause == lab4_errata.NOTHING for one in every)
    assert len(halves) >= 5
    assert len(named) >= 3


@of("lab_4")
def test_a_ring_takes_seconds_and_through_the_host_tens(command, ring, through_host):
    assert abs(document_of(f"{command} --ideal")["time"] / ring - 1) < 0.03
    assert through_host > 5 * ring


@of("lab_5")
def test_a_short_list_holds_the_best_where_one_choice_does_not(lost):
    by_rule, first, short, *_ = lost.values()
    assert sum(one == 0 for one in short) > 0.8 * len(short)
    assert sum(one == 0 for one in first) < 0.6 * len(first)
    assert median(first) < median(by_rule) and max(first) < max(by_rule)


@of("lab_5")
def test_nobody_ran_a_configuration_on_both_networks():
    assert lab5_sweeps.shared() == 0


@of("lab_5")
def test_stages_hardly_noticed_and_what_sums_gradients_would_have(most, ratios, says, tails):
    assert median(ratios["sick"]["stages"]) < 1.1
    assert all(says[name] > 2 for name in most) and says["stages"] < 1.2
    assert tails["sick"] > 10 * tails["sound"]
    assert len(ratios["sick"]["stages"]) > 10 * sum(len(ratios["sick"][name]) for name in most)


@of("lab_5")
def test_the_fastest_of_the_other_sweep_do_without_zero(small):
    fastest = sorted(small.rows, key=lambda row: row.seconds or math.inf)[:TRIES]
    assert all(row.zero == 0 and row.tensor > 1 for row in fastest)
    assert small.rows[small.rule].zero == 1 and small.rows[small.rule].tensor == 1


@of("lab_5")
def test_an_ill_node_makes_a_long_run_more_often_than_not(found, tails):
    assert found.both > found.ill / 2 > tails["sick"] * found.ill
    assert found.both < found.long


@of("lab_5")
def test_tensor_beyond_a_node_is_foretold_too_fast(wrong):
    off = {row["split by"]: row["measured / predicted"] for row in wrong}
    assert off.pop("tensor beyond a node") > 1.2
    assert all(abs(ratio - 1) < 0.05 for ratio in off.values())
