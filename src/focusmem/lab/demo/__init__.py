"""In: a seed and trained weights.
Out: two runs of the same tasks, without and with memory, and what happened in them in words.
Does not know the command line.
"""
