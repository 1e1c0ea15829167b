"""Jobs on a testbed of which a process stands still, or a link: `python -m experiments.stuck`."""
