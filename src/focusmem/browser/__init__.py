"""In: an address, then actions. Out: observations (screenshot, address, controls in view) and the results of actions.
Every call has a time limit, and only allowed sites open: all protection against pages is in this room.
Does not know who acts or why: no policy, no task, no memory, no laboratory.
"""
