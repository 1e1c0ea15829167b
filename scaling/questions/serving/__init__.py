"""Serving a model: time of a decode step and of a prompt, what fits, traffic, money."""
