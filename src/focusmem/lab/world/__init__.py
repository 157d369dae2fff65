"""In: a seed and a path.
Out: sites, pages in two views, visits to them, tasks with gold answers, solvers and the trajectories they leave.
Does not know models, memory or training.
"""
