"""In: a prompt of text and screenshots. Out: the reply of a hosted chat model, with its tokens and its cost. Does not
know the purpose of a question, or how a reply is read and used.
"""
