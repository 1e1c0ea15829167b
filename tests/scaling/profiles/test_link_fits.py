"""What profiles say of links: the most exact fit, and every answer kept by its own profile."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scaling.collectives.algorithms import ALGORITHMS
from scaling.meshes import catalog
from scaling.profiles.io import LINKS, profile_of
from scaling.profiles.profile import Evidence, LinkFit, algorithms, link_fit
from scaling.profiles.shipped import shipped, shipped_names
from scaling.program.ir import COLLECTIVE_KINDS

HERE = Evidence("a test", "2026-11", "measured", 3, 0.01, 0.02, 0.03, 0.04)


def test_a_collective_without_a_fit_takes_that_of_any():
    links = (
        LinkFit("any", "nvlink", 0.1, HERE),
        LinkFit("all-reduce", "nvlink", 0.3, HERE),
        LinkFit("any", "nvlink", 0.4, HERE, algorithm="ring"),
        LinkFit("all-reduce", "nvlink", 0.5, HERE, algorithm="ring"),
    )
    profile = replace(shipped("h100-sxm"), links=links)
    assert algorithms(profile, "all-reduce") == ("ring",)
    chosen = lambda *words: link_fit(profile, *words).efficiency
    assert chosen("ring", "all-reduce", "nvlink") == 0.5
    assert chosen("ring", "all-gather", "nvlink") == 0.4
    assert chosen("tree", "all-reduce", "nvlink") == 0.3
    assert chosen("tree", "all-gather", "nvlink") == 0.1
    only = replace(profile, links=(LinkFit("all-gather", "pcie", 1.0, HERE),))
    assert link_fit(only, "ring", "all-reduce", "pcie") is None


def test_a_fit_about_a_transport_counts_before_those_of_any():
    links = (
        LinkFit("all-reduce", "network", 0.9, HERE, algorithm="ring"),
        LinkFit("any", "network", 0.5, HERE, algorithm="ring", transport="efa"),
    )
    profile = replace(shipped("h100-sxm"), links=links)
    use = "ring", "all-reduce", "network"
    assert link_fit(profile, *use, "efa").efficiency == 0.5
    assert link_fit(profile, *use, "verbs").efficiency == 0.9
    assert link_fit(replace(profile, links=links[1:]), *use, "verbs") is None


@given(
    st.sampled_from(shipped_names()),
    st.sampled_from(list(ALGORITHMS)),
    st.sampled_from(COLLECTIVE_KINDS),
    st.sampled_from(LINKS),
)
def test_what_is_asked_twice_is_what_a_new_profile_says(name, algorithm, kind, link):
    profile = profile_of(catalog.accelerator(name))
    use = algorithm, kind, link
    first, again = link_fit(profile, *use), link_fit(profile, *use)
    assert first is again == link_fit(replace(profile), *use)
    assert algorithms(profile, kind) == algorithms(replace(profile), kind)
