"""A step is compiled even where XLA lacks an option of ours or fails with it."""

import jax
import pytest

from scaling.compile.options import GPU_OPTIONS, PIPELINED, compile_with
from scaling.meshes.errors import InputError

UNKNOWN = "INVALID_ARGUMENT: No such compile option: '{}'"
FAULT = "Bad StatusOr access: INTERNAL: RET_CHECK failure (hlo_schedule.cc:437) not scheduled"


class Lowered:
    """Compiles to the options that it was given, where those do not raise."""

    def __init__(self, refuse):
        self.refuse = refuse

    def compile(self, compiler_options):
        message = self.refuse(compiler_options)
        if message:
            raise RuntimeError(message)
        return compiler_options


def test_options_that_this_jax_does_not_know_are_left_out_one_by_one():
    def refuse(options):
        return next((UNKNOWN.format(name) for name in PIPELINED if name in options), None)

    left = compile_with(Lowered(refuse), {**GPU_OPTIONS, "xla_of_a_user": 1})
    assert left == {
        **{name: value for name, value in GPU_OPTIONS.items() if name not in PIPELINED},
        "xla_of_a_user": 1,
    }


def test_an_unknown_option_of_a_user_is_refused():
    refuse = lambda options: UNKNOWN.format("xla_of_a_user")
    with pytest.raises(InputError, match="'xla_of_a_user': leave it out"):
        compile_with(Lowered(refuse), {**GPU_OPTIONS, "xla_of_a_user": 1})


@pytest.mark.parametrize(
    "refusal", [UNKNOWN, "INVALID: While setting option {}, 'a=b' is no value"]
)
def test_flags_of_the_environment_that_no_call_sets_are_left_to_xla(refusal, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_map=a=b --xla_of_a_user=1")
    refuse = lambda options: refusal.format("xla_map") if "xla_map" in options else None
    given = {"xla_map": "a=b", "xla_of_a_user": "1"}
    assert compile_with(Lowered(refuse), given) == {"xla_of_a_user": "1"}
    with pytest.raises((InputError, RuntimeError), match="xla_map"):
        compile_with(Lowered(refuse), {**given, "xla_map": "c"})  # not what the variable says


def test_where_xla_fails_by_a_fault_of_its_own_nothing_is_pipelined():
    refuse = lambda options: FAULT if PIPELINED.keys() & options.keys() else None
    with pytest.warns(UserWarning, match="RET_CHECK"):
        left = compile_with(Lowered(refuse), GPU_OPTIONS)
    assert not PIPELINED.keys() & left.keys() and left


@pytest.mark.parametrize("message", [FAULT, "RESOURCE_EXHAUSTED: Out of memory"])
def test_what_fails_in_any_case_is_raised(message):
    with pytest.raises(RuntimeError, match=message[:12]):
        compile_with(Lowered(lambda options: message), {"xla_of_a_user": 1})


def test_a_step_without_memory_is_compiled_once():
    asked = []

    def refuse(options):
        asked.append(options)
        return "RESOURCE_EXHAUSTED: Out of memory"

    with pytest.raises(RuntimeError, match="RESOURCE"):
        compile_with(Lowered(refuse), GPU_OPTIONS)
    assert len(asked) == 1


def test_the_compiler_here_knows_them_all():
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    assert compile_with(lowered, GPU_OPTIONS)(1.0) == 2.0
