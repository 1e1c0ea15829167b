"""What a profile says of links: which algorithms and protocols it knows, the fit of each use.

Of the fits that hold, the one counts that says most exactly what it is about:

    algorithm and kind    algorithm, any kind    any algorithm, this kind    any of both

each before the same of any transport, if it is about what moves bytes between just those hosts.

A search of meshes asks the same by the thousand: each profile keeps what was found in it.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from scaling.profiles.profile import LinkFit, Profile
from scaling.program.ir import CollectiveKind

Names = ParamSpec("Names")
Found = TypeVar("Found")


def _kept(
    find: Callable[Concatenate[Profile, Names], Found],
) -> Callable[Concatenate[Profile, Names], Found]:
    """The same, looked up once in each profile."""

    @wraps(find)
    def found(profile: Profile, *names: Names.args, **others: Names.kwargs) -> Found:
        key = (find.__name__, *names, *sorted(others.items()))
        if key not in profile.answers:
            profile.answers[key] = find(profile, *names, **others)
        return profile.answers[key]

    return found


@_kept
def algorithms(profile: Profile, kind: CollectiveKind) -> tuple[str, ...]:
    """Those that the profile has figures of for this kind; none: only what holds for any."""
    named = (f.algorithm for f in profile.links if f.kind in (kind, "any"))
    return tuple(dict.fromkeys(name for name in named if name != "any"))


@_kept
def has_figures(profile: Profile, kind: CollectiveKind, link: str) -> bool:
    """Whether any algorithm has figures of its own of this kind over such links."""
    return any(
        f.link == link and f.algorithm != "any" and f.kind in (kind, "any") for f in profile.links
    )


@_kept
def protocols(profile: Profile, algorithm: str) -> tuple[str, ...]:
    """Protocols that an algorithm can run under, in the order of the profile."""
    own = [fit for fit in profile.links if fit.algorithm == algorithm] or profile.links
    return tuple(dict.fromkeys(fit.protocol for fit in own))


@_kept
def link_fit(
    profile: Profile,
    algorithm: str,
    kind: CollectiveKind,
    link: str,
    protocol: str,
    transport: str = "",
) -> LinkFit | None:
    """The fit that says most exactly how an algorithm uses a kind of link, or None."""
    found = [
        fit
        for fit in profile.links
        if fit.link == link
        and fit.protocol == protocol
        and fit.kind in (kind, "any")
        and fit.algorithm in (algorithm, "any")
        and fit.transport in (transport, "any")
    ]
    said = lambda f: (f.transport != "any", f.algorithm != "any", f.kind != "any")
    return max(found, key=said, default=None)
