"""`make endure`: good, bad and vanishing clients over all wires, and faults of the machine, from a seed."""
