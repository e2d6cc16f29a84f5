"""Ask an LLM for answers with confidences, read its replies, and judge the answers.

In: questions and a server. Out: records with question, answer, confidence and label. Open `run.py` first; `prompts.py`
has the prompts, `reading/` reads replies, `judging.py` labels answers.
"""

from qacal.sources.elicitation.matching import matches
from qacal.sources.elicitation.prompt_files import load_prompt
from qacal.sources.elicitation.prompts import PROMPTS, Prompt, Stage, prompt_named
from qacal.sources.elicitation.question import Question
from qacal.sources.elicitation.reading.numbers import read_probability
from qacal.sources.elicitation.reading.parsing import parse_guess, parse_stated
from qacal.sources.elicitation.reply import Malformed, Reason, Refused, Reply, Stated

__all__ = [
    "PROMPTS",
    "Malformed",
    "Prompt",
    "Question",
    "Reason",
    "Refused",
    "Reply",
    "Stage",
    "Stated",
    "load_prompt",
    "matches",
    "parse_guess",
    "parse_stated",
    "prompt_named",
    "read_probability",
]
