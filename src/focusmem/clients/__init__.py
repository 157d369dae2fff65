"""In: a prompt of text and screenshots.
Out: the reply of a chat model that is hosted elsewhere, with its tokens and what it cost.
Does not know what is asked for, how a reply is read, or what follows from it.
"""
