"""In: the world's trajectories and the frozen policy.
Out: an embedder, a bank, batches for memory training, trained variants and their measurements.
Does not know the command line.
"""
