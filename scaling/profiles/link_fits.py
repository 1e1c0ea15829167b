"""Look-ups of link fits in a profile: known algorithms, and the fit of each use.

Among the fits that apply, the most specific one is taken, in this order:

    algorithm and kind    algorithm, any kind    any algorithm, this kind    any of both

each for the transport between the hosts before the same for any transport. Each profile caches its
look-ups, which a search of meshes repeats by the thousand.
"""

from scaling.profiles.profile import LinkFit, Profile
from scaling.program.ir import CollectiveKind


def algorithms(profile: Profile, kind: CollectiveKind) -> tuple[str, ...]:
    """Algorithms with fits of their own for this kind; () if all fits are for any algorithm."""
    if (kind,) not in profile.cache:
        named = (fit.algorithm for fit in profile.links if fit.kind in (kind, "any"))
        profile.cache[kind,] = tuple(dict.fromkeys(name for name in named if name != "any"))
    found: tuple[str, ...] = profile.cache[kind,]
    return found


def link_fit(
    profile: Profile, algorithm: str, kind: CollectiveKind, link: str, transport: str = ""
) -> LinkFit | None:
    """The most specific fit of an algorithm over a kind of link; None if there is none."""
    key = algorithm, kind, link, transport
    if key not in profile.cache:
        able = [
            fit
            for fit in profile.links
            if fit.link == link
            and fit.kind in (kind, "any")
            and fit.algorithm in (algorithm, "any")
            and fit.transport in (transport, "any")
        ]
        specificity = lambda f: (f.transport != "any", f.algorithm != "any", f.kind != "any")
        profile.cache[key] = max(able, key=specificity, default=None)
    found: LinkFit | None = profile.cache[key]
    return found
