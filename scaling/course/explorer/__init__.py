"""The explorer: compiled programs that come with the package, priced again as figures change.

    programs({})                                    what can be chosen, in groups
    answer({"program": KEY, "network": 0.5})        one step: numbers, pictures, the command

Both take and return what JSON holds, for a page; neither needs JAX.
"""
