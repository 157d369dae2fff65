"""In: the name of a part of our results, such as the laboratory's ladder, and a folder.
Out: a plan of units in order, which go on from what the folder holds, and tables of what they found.
`plan.py` is the engine, `packing.py` carries its state between machines; neither knows what units do.
"""
