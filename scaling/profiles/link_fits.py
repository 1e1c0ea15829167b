"""Look-ups of link fits in a profile: known algorithms, and the fit of each use.

Among the fits that apply, the most specific one is taken, in this order:

    algorithm and kind    algorithm, any kind    any algorithm, this kind    any of both

each for the transport between the hosts before the same for any transport. Each profile caches its
look-ups, which a search of meshes repeats by the thousand.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from scaling.profiles.profile import LinkFit, Profile
from scaling.program.ir import CollectiveKind

Names = ParamSpec("Names")
Result = TypeVar("Result")


def _cached(
    look_up: Callable[Concatenate[Profile, Names], Result],
) -> Callable[Concatenate[Profile, Names], Result]:
    """`look_up`, done once for each profile and names."""

    @wraps(look_up)
    def cached(profile: Profile, *names: Names.args, **options: Names.kwargs) -> Result:
        key = (look_up.__name__, *names, *sorted(options.items()))
        if key not in profile.look_ups:
            profile.look_ups[key] = look_up(profile, *names, **options)
        return profile.look_ups[key]

    return cached


@_cached
def algorithms(profile: Profile, kind: CollectiveKind) -> tuple[str, ...]:
    """Algorithms with fits of their own for this kind; () if all fits are for any algorithm."""
    named = (f.algorithm for f in profile.links if f.kind in (kind, "any"))
    return tuple(dict.fromkeys(name for name in named if name != "any"))


@_cached
def link_fit(
    profile: Profile,
    algorithm: str,
    kind: CollectiveKind,
    link: str,
    transport: str = "",
) -> LinkFit | None:
    """The most specific fit of an algorithm over a kind of link; None if there is none."""
    candidates = [
        fit
        for fit in profile.links
        if fit.link == link
        and fit.kind in (kind, "any")
        and fit.algorithm in (algorithm, "any")
        and fit.transport in (transport, "any")
    ]
    specificity = lambda f: (f.transport != "any", f.algorithm != "any", f.kind != "any")
    return max(candidates, key=specificity, default=None)
