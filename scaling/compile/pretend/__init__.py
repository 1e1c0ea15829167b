"""The devices of a cluster that is not here, in the place of jax's own: entered by `sc.pretend`.

    pretend.py      replaces what jax answers with, for as long as it is entered
      entries.py      who has entered, so that all is put back in order
      coordinator.py  what the other processes of the job would say
      device_put.py   what is put on absent devices: shapes
      pmap.py         mapped functions of all processes
    arrays.py       jax.ShapeDtypeStruct that does what set-up code asks of arrays
    devices.py      which devices and shardings are absent, and which calls land there
    mesh_types.py   a traced function without its mesh, to be computed on this machine

What is private to jax is replaced in one other file, `scaling.compile.jax_internals`.
"""
