"""A real cluster inside one Linux machine: hosts are network namespaces, links have a known rate.

plan       what a testbed consists of, as data
steps      the commands that make it, in order
machine    the only module that touches the system: ip, tc, files, processes
build      up and down; nothing is left behind
state      the testbeds that exist, in the user's cache
job        one process in every host
"""
