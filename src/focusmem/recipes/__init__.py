"""In: names of experiments.
Out: whole configs and the data they run on, put together from all rooms.
Knows every room; no room knows it, but for the command line.
"""
