"""The devices of a cluster that is not here, in the place of jax's own: entered by `sc.pretend`.

`pretend.py` replaces what jax answers with, `devices.py` and `arrays.py` are what it then holds.
"""
