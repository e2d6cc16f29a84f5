r"""Labels for answers: compared with the ground truth, and where that does not settle it, judged by an LLM.

An answer that equals the ground truth, or one of its other spellings, once case, articles and punctuation are put
aside, is right: that costs nothing, and no judge is needed. All others are put to the judge (the paper's ground-truth
proxy), whose first word is taken if it is Yes or No. Anything else is no verdict. Answers that match have a label
without the judge, so leaving the others out makes an LLM look better than it is: what becomes of them must be chosen.

A judge errs too. Where some rows have labels by people, :mod:`~qacal.sources.elicitation.people` says how often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from qacal.sources.elicitation.asking import Asking
from qacal.sources.elicitation.matching import matches
from qacal.sources.elicitation.outcomes import Outcome
from qacal.sources.elicitation.question_rows import texts_in
from qacal.sources.elicitation.reading.characters import without_thoughts
from qacal.sources.elicitation.reply import Reply
from qacal.sources.elicitation.requests import Answered, Conversation, Request, require_fields
from qacal.sources.elicitation.store import Store
from qacal.sources.elicitation.verdicts import JUDGE_MAX_TOKENS, JUDGE_PROMPT, judge_messages, read_verdict

Record: TypeAlias = dict[str, Any]

ALIAS = "alias"
COMPARED = "comparing with the ground truth"
UNSURE = ("wrong", "ask_again", "drop")
SILENT = "the judge has not replied"
_ONE_WORD = "Reply with one word, Yes or No: do the two answers agree?"


@dataclass(frozen=True)
class Judge:
    """Who judges what comparing does not settle.

    model : the name that the server knows the judge by; None for nobody: what does not match is then wrong.
    fields : further fields of requests; None leaves one out.

    >>> Judge().label("the paris.", ("Paris",)), Judge().label("Lyon", ("Paris",))
    (1.0, 0.0)
    """

    model: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_fields(self.fields)

    @property
    def name(self) -> str:
        """What records carry in their column `judge`."""
        return ALIAS if self.model is None else f"{self.model} ({JUDGE_PROMPT})"

    def label(self, answer: str, truths: Sequence[str], question: str | None = None) -> float | None:
        """Return the label that costs nothing; None if the LLM is to say."""
        if matches(answer, truths, question):
            return 1.0
        return 0.0 if self.model is None else None

    def request(self, question: str, answer: str, truths: Sequence[str]) -> Request:
        """Return what the judge is asked."""
        usual = {
            "model": self.model,
            "messages": judge_messages(question, answer, truths),
            "temperature": 0.0,
            "max_tokens": JUDGE_MAX_TOKENS,
        }
        return {name: value for name, value in (usual | dict(self.fields)).items() if value is not None}

    def second_request(self, request: Request, reply: Reply) -> Request:
        """Return what the judge is asked after a reply without a verdict."""
        said = without_thoughts(reply.text).strip() or "(no verdict)"
        turns = [{"role": "assistant", "content": said}, {"role": "user", "content": _ONE_WORD}]
        return request | {"messages": [*request["messages"], *turns]}


@dataclass
class Verdicts:
    """How many answers were labelled, and by what; the others by reason.

    unsettled : answers that only the judge could label and did not, by reason, whatever became of them.
    dropped : those of them that were left out.
    """

    rows: int = 0
    by: Counter[str] = field(default_factory=Counter)
    right: int = 0
    unlabelled: Counter[str] = field(default_factory=Counter)
    needs_judge: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)


def judged(
    records: Iterable[Record], judge: Judge, store: Store | None, count: Verdicts, unsure: str | None = None
) -> Iterator[Record]:
    """Yield records with `correct` (None where nothing settles it) and `judge`; replies are those in the store.

    unsure : what becomes of answers that the judge has not settled: "wrong" labels them 0, "drop" leaves them out.
    """
    for record in records:
        count.rows += 1
        label, by, is_unsettled = _label(record, judge, store)
        if is_unsettled:
            count.needs_judge[by] += 1
            if unsure == "drop":
                count.dropped[by] += 1
                continue
            if unsure == "wrong":
                label, by = 0.0, "no verdict, counted as wrong"
        if label is None:
            count.unlabelled[by] += 1
        else:
            count.by[by] += 1
            count.right += label == 1.0
        yield record | {"correct": label, "judge": None if label is None else judge.name}


def ask_judge(records: Iterable[Record], judge: Judge, asking: Asking, *, again: bool = False) -> None:
    """Ask the judge what has no label and no verdict yet; `again` asks once more for one word where there is none."""
    asking.all(_conversation(judge, judge.request(*asked), again) for asked in needs_judge(records, judge))


def needs_judge(records: Iterable[Record], judge: Judge) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield question, answer and ground truths of the records that only the judge can label."""
    for record in records:
        truths = ground_truths(record)
        if truths and record["answer"] is not None and _compared(record, judge, truths) is None:
            yield str(record["question"]), str(record["answer"]), truths


def _conversation(judge: Judge, request: Request, again: bool) -> Conversation:
    replies: list[Reply] = [(yield request)]
    if again and read_verdict(replies[0].text) is None:
        replies.append((yield judge.second_request(request, replies[0])))
    none: tuple[Outcome, ...] = ()
    return Answered(tuple(replies), none)


def _label(record: Record, judge: Judge, store: Store | None) -> tuple[float | None, str, bool]:
    """Return the label of a record and what it is by, or None and why; and whether only the judge could tell."""
    truths, answer = ground_truths(record), str(record["answer"])
    if not truths or record["answer"] is None:
        return None, "no ground truth" if record["answer"] is not None else "no answer", False
    label = _compared(record, judge, truths)
    if label is not None:
        return label, COMPARED, False
    verdict = None if store is None else _verdict(judge, judge.request(str(record["question"]), answer, truths), store)
    if isinstance(verdict, bool):
        return float(verdict), "the judge", False
    return None, verdict or SILENT, True


def _verdict(judge: Judge, request: Request, store: Store) -> bool | str | None:
    """Return the judge's verdict, of the second reply if the first has none; else why there is none; None if silent."""
    reply = store.reply(request)
    if reply is None or (verdict := read_verdict(reply.text)) is not None:
        return None if reply is None else verdict
    second = store.reply(judge.second_request(request, reply))
    if second is not None and (verdict := read_verdict(second.text)) is not None:
        return verdict
    is_cut = (second or reply).is_cut
    return "the judge's reply is cut off before a verdict" if is_cut else "the judge says neither Yes nor No"


def _compared(record: Record, judge: Judge, truths: Sequence[str]) -> float | None:
    question = record.get("question")
    return judge.label(str(record["answer"]), truths, question if isinstance(question, str) else None)


def ground_truths(record: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the right answers of a record: a text, a list, or a list as JSON.

    >>> ground_truths({"ground_truth": '["4", "four"]'}), ground_truths({"ground_truth": 4})
    (('4', 'four'), ('4',))
    >>> ground_truths({"ground_truth": "[1, 2, 3]"})
    ('[1, 2, 3]',)
    """
    given = record.get("ground_truth")
    listed = texts_in(given) if isinstance(given, str) else given if isinstance(given, list | tuple) else [given]
    return tuple(str(one) for one in listed if one is not None and str(one).strip())
