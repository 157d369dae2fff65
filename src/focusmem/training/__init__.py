"""In: a frozen policy with a fresh memory, and decisions with the evidence items that were retrieved for them.
Out: a trained memory pathway (stage A, then stage B), the teacher's lessons it learnt from, and a gate threshold.
Knows nothing of where trajectories come from, how items were found, or how an episode is run and judged.
"""
