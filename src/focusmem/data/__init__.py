"""In: stored trajectories, a bank, evaluation tasks that must not leak.
Out: training decisions: which trajectories are used, what the bank has for each decision, and the batches made of them.
Does not know which variant is trained, or how.
"""
