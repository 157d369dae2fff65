"""In: finished attempts, as judges see them.
Out: result folders in the form that benchmarks' own scripts read, and a list of what this form cannot hold.
Does not know runs, banks, or which agent acted.
"""
