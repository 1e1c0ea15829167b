"""The pages of the source documents: two languages, the same figures, all computed."""

import re

import pytest

from experiments.plans.documents import DOCUMENTS, FIGURE, LANGUAGES, PAGES, filled, pages

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def text(name, language):
    return (PAGES / f"{name}.{language}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_both_languages_state_the_same_figures_and_commands(name):
    english, korean = (text(name, language) for language in LANGUAGES)
    assert sorted(FIGURE.findall(english)) == sorted(FIGURE.findall(korean))
    assert BLOCK.findall(english) == BLOCK.findall(korean)


def test_a_figure_that_nobody_computes_is_refused():
    with pytest.raises(KeyError, match="days"):
        filled("{{days}}", {})


@pytest.mark.slow
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_page_is_current(name):
    for path, current in pages([name]):
        assert path.read_text(encoding="utf-8") == current, "python -m experiments.plans.documents"
