"""In: finished attempts, as judges see them.
Out: result folders as benchmarks' own scripts read them, and what these cannot hold.
Does not know runs, banks, or which agent acted.
"""
