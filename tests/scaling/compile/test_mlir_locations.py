"""Names of operations and arguments in a lowered text, without the lines of their source."""

import jax
import jax.numpy as jnp

from scaling.compile.mlir_locations import lines_in, names_in

TEXT = """#loc1 = loc("params")
module @jit_step {
  func.func public @main(%arg0: tensor<8xf32> loc("params")) -> (tensor<8xf32>) {
    %0 = stablehlo.negate %arg0 : tensor<8xf32> loc(#loc8)
    %1 = stablehlo.abs %0 : tensor<8xf32> loc(#loc9)
    return %1 : tensor<8xf32> loc(#loc6)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc2 = loc("folder/step.py":10:47 to :60)
#loc4 = loc("step"(#loc2))
#loc5 = loc("caller"(#loc2))
#loc6 = loc(callsite(#loc4 at #loc5))
#loc8 = loc("jit(step)/mlp/neg"(#loc6))
#loc9 = loc(fused<"why">[#loc8, "jit(step)/abs"(#loc6), #loc2])
"""


def test_each_name_stands_where_its_operation_does() -> None:
    assert names_in(TEXT)[:2] == ["params", "jit(step)/mlp/neg"]


def test_files_lines_and_callers_have_no_part_in_it() -> None:
    moved = TEXT.replace("10:47 to :60", "12:1 to :2").replace("folder/step", "other/place")
    assert names_in(moved.replace("caller", "somebody_else")) == names_in(TEXT)
    assert names_in(TEXT)[3:] == ["", "", ""]


def test_the_innermost_line_of_an_operation_is_told_and_no_caller():
    callee = TEXT.replace('#loc5 = loc("caller"(#loc2))', '#loc5 = loc("caller"(#loc3))')
    callee += '#loc3 = loc("caller.py":1:2 to :3)\n'
    assert lines_in(callee) == lines_in(TEXT) == ["", *['"folder/step.py":10'] * 2, "", "", ""]
    assert lines_in(TEXT.replace("10:47", "12:47"))[1] == '"folder/step.py":12'


def test_a_merged_operation_has_the_names_of_all() -> None:
    assert names_in(TEXT)[2].startswith("jit(step)/mlp/neg;jit(step)/abs")


def test_jax_writes_the_names_as_they_are_read() -> None:
    def step(params: jax.Array) -> jax.Array:
        with jax.named_scope("layers/mlp"):
            return params @ params

    text = jax.jit(step).lower(jnp.ones((4, 4))).as_text(debug_info=True)
    assert {"params", "jit(step)/layers/mlp/dot_general"} <= set(names_in(text))
