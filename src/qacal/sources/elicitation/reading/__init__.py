"""Read an LLM's reply: the answer and the confidence in it, or why there is none.

In: the text of a reply. Out: answer and confidence, or the name of what is wrong. Open `parsing.py` first.
"""
