"""In: prompts (text and screenshots) of decisions and of evidence items.
Out: memory tokens in front of the frozen policy's input, gate decisions, and the policy's reply.
Knows nothing of where trajectories come from, how they were found, or what a reply does to a page.
"""
