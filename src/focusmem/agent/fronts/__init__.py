"""In: prompts, decisions, and the trajectories that were found for them.
Out: each prompt with memory in front of it: nothing, text, raw trajectories or latent blocks.
Does not know how trajectories are found, where the policy runs, or what the reply will be.
"""
