"""A whole training: FLOPs, devices, time, energy, money, failures."""
