"""In: a memory and, for most, runs made with it.
Out: figures that take the method apart: where time goes, what a block reads, whom the gate trusts.
Knows nothing of how its figures are shown.
"""
