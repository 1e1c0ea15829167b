"""Suggestions: what is suggested exists, and what was meant is found."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scaling.meshes.errors import FEW, InputError, check_keys, nearest

AXES = ("data", "fsdp", "stage", "expert", "context", "tensor")
MANY = [f"model-{i}b" for i in range(FEW + 1)]
WORDS = st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("written", "meant"), [("dta", "data"), ("tensr", "tensor"), ("fspd", "fsdp")]
)
def test_the_closest_spelling_comes_first_and_few_names_are_listed_too(written, meant):
    assert nearest(written, AXES) == f"did you mean {meant!r}? (known: {', '.join(AXES)})"


def test_of_many_names_only_the_closest_is_given():
    assert nearest("model-3", MANY) == "did you mean 'model-3b'?"


def test_where_nothing_is_close_all_names_are_listed():
    assert nearest("nope", ["tiny-moe"]) == "known: tiny-moe"
    assert nearest("zzz", AXES) == "known: " + ", ".join(AXES)
    assert nearest("zzz", MANY) == "known: " + ", ".join(MANY)


@pytest.mark.parametrize(("written", "meant"), [("DATA", "data"), ("Tensor", "tensor")])
def test_capital_letters_do_not_hide_what_was_meant(written, meant):
    assert nearest(written, AXES).startswith(f"did you mean {meant!r}?")


@given(WORDS, st.lists(WORDS, min_size=1, unique=True))
def test_only_names_that_exist_are_suggested(written, names):
    phrase = nearest(written, names)
    assert any(phrase.startswith(f"did you mean {name!r}?") for name in names) or phrase == (
        "known: " + ", ".join(names)
    )


@given(WORDS, st.lists(WORDS, unique=True))
def test_an_unknown_key_is_named_with_its_place_and_kind(key, valid):
    assume(key not in valid)
    with pytest.raises(InputError) as raised:
        check_keys([*valid, key], iter(valid), "run.json: batch", "setting")
    assert str(raised.value).startswith(f"run.json: batch: unknown setting {key!r}; ")


def test_a_key_that_is_not_text_is_refused_like_any_other():
    with pytest.raises(InputError, match="unknown key 3; known: data"):
        check_keys([3], AXES, "--mesh")  # type: ignore[list-item]
