"""In: an address, then actions. Out: observations (screenshot, address, controls in view) and what came of each action.
Bounded in time, and kept to the sites it was allowed: what a page cannot do to us is decided here.
Does not know who acts or why: no policy, no task, no memory, no laboratory.
"""
