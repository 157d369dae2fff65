"""In: a decision; what a model wrote.
Out: the prompt that this kind of model expects; one of our seven actions, and where on the screenshot it points.
Does not know memory, browsers, or how a model is reached.
"""
