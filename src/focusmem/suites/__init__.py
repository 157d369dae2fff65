"""In: task files, benchmarks, generated worlds.
Out: tasks with unique ids, what a browser needs to open them, and their judge.
Does not know which agent acts, which memory it has, or how runs are stored.
"""
