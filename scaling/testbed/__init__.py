"""A real cluster inside one Linux machine: hosts are network namespaces, links have a known rate.

plan       what a testbed consists of, as data
steps      what makes it, in order
machine    the only place that touches the system: ip, tc, files, processes
build      up and down, with the guarantee that nothing is left behind
state      which testbeds there are, in the user's cache
job        one process in every host
keeper     ends with a command what the command has started
gloo       what the collectives of JAX's CPU backend send over the links
gloo_time  how long that takes; sharing: how messages share a link
"""
