"""In: a seed. Out: small web sites with hidden conventions, tasks on them, solvers, and a policy that lives there.
Everything a run needs, without downloads; honest science at small size, always labelled as such.
Knows nothing of real benchmarks; nothing but recipes, cli and tests imports it.
"""
