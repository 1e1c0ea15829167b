"""What a review of 131 foreign programs found in November 2026: each finding has tests of its own.

A: prices that were wrong. B: memory. C: another program than the one given. D: needless refusals.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "scaling"
FOUND = {
    "A1 attention without a mask, or in a window": {
        "hlo/custom_calls": "the_share_of_scores_that_a_mask_leaves",
        "simulate/attention": "a_long_causal_mask_halves_the_time_and_a_window_takes_its_share",
    },
    "A2 Pallas kernels": {
        "api/step": "the_estimate_of_a_pallas_kernel_is_its_work_else_what_is_counted",
        "hlo/reader": "every_function_whose_work_is_not_known_is_named",
    },
    "A3 factorisations": {
        "hlo/library_work": "factorisations_count_their_flops_and_go_column_by_column",
    },
    "A4 sorts": {"hlo/library_work": "a_long_sort_is_cubs_and_goes_over_its_keys_four_times"},
    "A5 loops of unknown length": {
        "hlo/user_hints": "the_caller_says_how_often_a_loop_runs_by_its_name_line_or_scope",
    },
    "A6 gradients of few weights": {
        "hlo/custom_calls": "a_gradient_of_few_weights_splits_its_long_sum",
    },
    "B1, B2 scatters in place, results that are not donated": {
        "hlo/foreign_memory": "the_walk_finds_the_peak_that_the_compiler_planned",
    },
    "C1 contexts of the caller": {
        "compile/stages": "a_step_that_is_lowered_keeps_what_was_set_around_it",
    },
    "C2 a mesh of another size than a dump": {
        "cli/price": "options_that_a_program_has_not_are_refused",
    },
    "D1 values computed while tracing": {
        "compile/pretend": "values_that_a_trace_computes_at_once_come_from_this_machine",
        "compile/setups": "values_are_computed_while_a_mesh_is_set",
    },
    "D2 products that Triton cannot tile": {
        "api/step": "products_that_xla_cannot_tile_are_compiled_in_another_way",
    },
    "D3 Mosaic GPU": {"api/step": "a_kernel_of_mosaic_that_stays_on_its_device_is_counted"},
    "D4 functions of the host": {"api/step": "functions_of_the_host_are_calls_in_the_price"},
    "D5 arguments without shardings": {
        "compile/stages": "shardings_of_the_step_itself_say_on_which_mesh_it_runs",
        "api/step": "without_a_mesh_one_gpu_does_it",
        "compile/setups": "pmap_over_a_replicated_state_as_flax_examples_do",
    },
    "D6 keywords": {
        "compile/stages": "keywords_and_static_arguments_are_passed_on",
        "api/step": "keywords_of_the_step_that_have_a_name_of_ours_come_in_a_mapping",
    },
    "D7 two meshes of one cluster": {
        "compile/pretend": "two_meshes_of_one_cluster_are_of_equal_devices",
    },
    "D8 formats without a peak": {
        "simulate/kernels": "a_dtype_without_a_rate_names_those_that_have_one",
        "simulate/step": "a_product_whose_rate_nobody_knows_refuses_no_program",
    },
    "D9 hybrid meshes": {
        "compile/pretend": "devices_in_any_order_are_priced_by_the_nodes_they_lie_on",
    },
    "D10 a models.py beside the script": {
        "api/step": "modules_of_the_user_may_have_the_names_of_our_folders",
    },
    "D11 tokens and model FLOPs": {
        "api/step": "with_tokens_and_model_flops_a_step_has_its_rate_and_its_mfu",
    },
    "D12 one warning for all groups of unknown axes": {
        "cli/price": "tokens_and_model_flops_give_rates",
        "hlo/reader": "devices_that_are_no_axes_are_kept_and_warned_about",
    },
}


@pytest.mark.parametrize("finding", FOUND)
def test_a_finding_has_its_tests(finding: str) -> None:
    for module, name in FOUND[finding].items():
        folder, file = module.split("/")
        tree = ast.parse((TESTS / folder / f"test_{file}.py").read_text(encoding="utf-8"))
        assert f"test_{name}" in {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }
