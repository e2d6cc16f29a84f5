"""Where answers come from: LLM servers, logs of other tools, and sets of questions.

In: a server, a log or a benchmark. Out: records with question, answer, confidence and label. Open
`elicitation/__init__.py`, `importers/base.py` or `questions/__init__.py` first.
"""
