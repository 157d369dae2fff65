"""In: task files, benchmarks, generated worlds.
Out: tasks with names of their own, what a browser needs to open them, and the judge that fits.
Does not know which agent acts, which memory it has, or how runs are stored.
"""
