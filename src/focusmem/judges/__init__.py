"""In: a task, the finished trajectory of one attempt, its screenshots and its answer.
Out: a verdict with its reason, the raw reply and the cost.
Does not know how the attempt was made, which memory the agent had, or how verdicts are aggregated.
"""
