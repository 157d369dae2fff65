"""In: a task, a browser, a mind (a policy with or without memory, or a script).
Out: an episode: what was seen, thought and done, step by step.
Knows nothing of training, of judges, or of which benchmark a task comes from.
"""
