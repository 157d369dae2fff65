"""In: the result files of other agents and of benchmarks' own harnesses.
Out: tasks and trajectories in our seven actions; a reason for each result that is refused.
Does not know runs, banks, or how results are stored here.
"""
