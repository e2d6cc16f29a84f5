"""Where answers come from: LLM servers, logs of other tools, and sets of questions.

In: a server, a log or a benchmark. Out: records with question, answer, confidence and label. Open
`elicitation/run.py`, `importers/formats.py` or `questions/hub.py` first.
"""
