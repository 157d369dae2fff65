"""In: a task, a browser, a policy with or without memory.
Out: an episode: what was seen, thought and done, step by step.
Knows nothing of training, of judges, or of which benchmark a task comes from.
"""
