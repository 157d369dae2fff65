"""In: names of experiments.
Out: whole configs and the data they run on, put together from all rooms.
Knows every room; only the command line knows it.
"""
