"""In: the world's pages and solvers.
Out: a trained Qwen3-VL of about 20 million parameters that acts on these pages, with its tokenizer and its prompts.
Does not know memory.
"""
