"""In: command-line words. Out: text for people, or one JSON document on standard output.
Each command parses, calls one function and says where the result is; heavy rooms are imported inside it.
Knows nothing that a library user would need.
"""
