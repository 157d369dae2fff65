"""In: a seed. Out: small web sites with hidden conventions, tasks on them, solvers, and a policy that lives there.
Offers everything that a run needs, without downloads; its figures are always labelled as the laboratory's.
Knows nothing of real benchmarks; only recipes, cli and tests import it.
"""
