"""In: a decision; a model's reply. Out: the prompt that this kind of model expects; one of our seven actions, and the
point on the screenshot that it names. Does not know memory, browsers, or how a model is reached.
"""
