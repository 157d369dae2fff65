"""In: a memory and, for most, runs made with it.
Out: figures about single parts of the method: time, cost, what a block reads, what the gate trusts.
Knows nothing of how its figures are shown.
"""
