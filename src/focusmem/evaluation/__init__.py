"""In: tasks, a mind, a way to get browsers, a judge; later the folders of finished runs.
Out: run folders, their figures, and comparisons of runs.
Does not know which benchmark a task comes from, how a mind remembers, or how a page is drawn.
"""
