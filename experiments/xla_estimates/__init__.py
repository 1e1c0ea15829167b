"""XLA's own estimates held against counts by hand, and against our price."""
