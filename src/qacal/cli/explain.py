"""`qacal explain`: the calibrated probability of one answer, with its evidence."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from json import loads
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import counted, printable

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet


def run(
    model: options.Model,
    confidence: Annotated[float, typer.Option(help="The stated confidence, 0 to 1.")],
    question: Annotated[str | None, typer.Option(metavar="TEXT", help="The question.")] = None,
    answer: Annotated[str | None, typer.Option(metavar="TEXT", help="The answer of the LLM.")] = None,
    column_value: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Another column that the model uses: subject=law, confidence_tokens=0.4. May be repeated.",
        ),
    ] = None,
    embedder: options.Embedder = None,
    json: options.Json = False,
) -> None:
    """Explain the calibrated probability of one answer.

    stated is the LLM's confidence, calibrated the probability that the answer is correct. The interval is certified. By
    default it says how far off the answers of a band are on average, those with a similar score; with other
    calibrators, it is about the accuracy of similar answers in the group or in a larger one. The last lines say what
    moved the probability away from the stated confidence. For a set of models (qacal fit --by model), name the LLM:
    --column-value model=NAME.

    \b
        qacal explain model --question "What is 17 * 23?" --answer 391 --confidence 0.9
        qacal explain model --question "..." --answer "..." --confidence 0.9 --column-value confidence_tokens=0.4
    """
    from qacal.model.saved import load

    if not 0 <= confidence <= 1:
        raise typer.BadParameter(f"--confidence is {confidence:g}; expected 0 to 1, such as 0.9 for 90 percent.")
    others = _values(column_value)
    loaded = load(model, embedder=embedder)
    one = _model_for(loaded, model, others)
    if one._needs["needs_text"] and (question is None or answer is None):
        raise typer.BadParameter("this model uses the text; pass both, --question and --answer.")
    _require_read(one, {*others} - {loaded._by})
    for name in one.pipeline_.group_columns:
        if name not in others:
            raise typer.BadParameter(f"the groups of this model are {name}; pass --column-value {name}=VALUE.")
    evidence = _explained(one, {"question": question or "", "answer": answer or "", "confidence": confidence}, others)
    if json:
        print(options.json_text(evidence))
        return
    for name, text in _lines(one, evidence):
        options.show(f"{name:<12}{text}", hang=12)
    for line in _why(evidence):
        options.show(line)


def _values(texts: list[str] | None) -> dict[str, Any]:
    """Return ``--column-value`` options as a mapping.

    >>> _values(["subject=law", "formula=a=b"])
    {'subject': 'law', 'formula': 'a=b'}
    """
    out = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE, such as subject=law.")
        if name in ("question", "answer", "confidence"):
            raise typer.BadParameter(f"{name} has an option of its own: --{name}.")
        out[name] = value
    return out


def _model_for(loaded: QACalibrator | ModelSet, path: str, others: dict[str, Any]) -> QACalibrator:
    """Return the model; for a set, the one that `others` names, with the value in the type of the set."""
    if loaded._by is None:
        return loaded._models[None]
    names = {str(value): value for value in loaded._models}
    value = others.get(loaded._by)
    if value not in names:
        problem = "" if value is None else f" There is no model for {value!r}."
        raise typer.BadParameter(
            printable(
                f"{path} was fitted with --by {loaded._by}.{problem} Pass --column-value {loaded._by}=VALUE, with one "
                f"of {', '.join(names)}."
            )
        )
    others[loaded._by] = names[value]
    return loaded._models[names[value]]


def _require_read(model: QACalibrator, names: set[str]) -> None:
    """Raise for a column that the model does not read, which is most likely misspelt."""
    from qacal.records.columns import KNOWN
    from qacal.records.provenance import SAMPLING

    read = {*model.pipeline_.values_seen()}
    if (rule := model.decision_rule_) is not None and rule.column is not None:
        read.add(rule.column)
    unknown = sorted(names - read - {*KNOWN, "agreement", *SAMPLING})
    if unknown:
        reads = f"it reads {', '.join(sorted(read))}" if read else "it reads no further columns"
        raise typer.BadParameter(printable(f"this model does not read {unknown[0]!r}; {reads}."))


def _explained(model: QACalibrator, row: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return the evidence; try each value as text, then as a number, true or false, like in the fit."""
    from qacal.errors import InputError

    *tries, last = product(*map(_readings, others.values()))
    for values in tries:
        try:
            return model.explain(**row, **dict(zip(others, values, strict=True)))
        except InputError:
            continue
    return model.explain(**row, **dict(zip(others, last, strict=True)))


def _readings(value: Any) -> list[Any]:
    """Return the possible types of a value: models refuse labels of another type than in their fit, "2" for 2.

    >>> _readings("law"), _readings("2"), _readings("0.4"), _readings("True")
    (['law'], ['2', 2], ['0.4', 0.4], ['True', True])
    """
    if not isinstance(value, str):
        return [value]
    try:
        return [value, loads(value.lower())]
    except (ValueError, RecursionError):
        return [value]


# What is printed


def _lines(model: QACalibrator, evidence: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "stated", f"{evidence['confidence']:.2f}"
    yield "calibrated", f"{evidence['calibrated']:.2f}, the probability that the answer is correct"
    yield "interval", _interval(model, evidence)
    yield "group", _group(model, evidence["group"])
    if evidence["group_low"] is not None:
        yield (
            "",
            (
                f"{evidence['group_low']:.2f} to {evidence['group_high']:.2f}: accuracy of all answers of this group "
                f"({counted(evidence['group_rows'], 'row')}, at once with the interval)"
            ),
        )
    if evidence["unlike"] is not None:
        yield "unlike", f"{evidence['unlike']:.2f}: farther from the fit than {evidence['unlike']:.0%} of its rows"
    if evidence["decision"] is None:
        yield "decision", "none; no threshold chosen yet (qacal threshold)"
    elif evidence["threshold"] is None:
        yield "decision", f"{evidence['decision']}; no threshold could be certified for such answers"
    else:
        yield "decision", f"{evidence['decision']}; the threshold is {evidence['threshold']:g}"


def _interval(model: QACalibrator, evidence: dict[str, Any]) -> str:
    if not model.calibrator_.properties.is_certified:
        return "none; this model has no intervals"
    if evidence["source"] == "far":
        return "none; the fit had no rows like this one"
    interval = f"{evidence['low']:.2f} to {evidence['high']:.2f}"
    if not evidence["rows"]:
        return f"{interval}: the fit had no such rows, so nothing is certified"
    is_by_document = getattr(getattr(model.calibrator_.maps_, "certificate", None), "is_by_document", False)
    kind_of_row = "document" if is_by_document else "row"
    chance = f"{counted(evidence['rows'], kind_of_row)}, with probability {100 * (1 - evidence['alpha']):.4g}%"
    if evidence["source"] == "band":
        from qacal.planning import shown_bound

        bands = getattr(model.calibrator_.maps_, "n_bands", 1)
        kind = "stated confidence" if model.learned_score_ is None else "score"
        similar = "all answers" if bands == 1 else f"answers with a similar {kind} (one of {bands} bands)"
        # An end at 0 or 1 is cut off, and does not say how far off the band is.
        off = [f"{shown_bound(evidence['calibrated'] - evidence['low'])} too high"] if evidence["low"] > 0 else []
        off += [f"{shown_bound(evidence['high'] - evidence['calibrated'])} too low"] if evidence["high"] < 1 else []
        if not off:
            return f"{interval}: nothing is certified about {similar} ({chance})"
        return f"{interval}: {similar} are on average at most {' and '.join(off)} ({chance})"
    answers = {"group": "answers in this group", "ancestor": "answers in a larger group", "root": "all answers"}
    score = "probability" if model.learned_score_ is not None else "stated confidence"
    return f"{interval}: accuracy of {answers[evidence['source']]} with a similar {score} ({chance})"


def _why(evidence: dict[str, Any]) -> Iterator[str]:
    """Yield what moved the probability from the stated confidence, step by step, and the nearest examples."""
    import numpy as np

    from qacal.calibrators.base import expit
    from qacal.model.reasons import STATED, STEP, WORTH

    words = {
        STATED: "stated",
        WORTH: "correction of the confidence",
        "text": "the meaning of the text",
        "form": "its form (lengths, digits, ...)",
        "words": "its words",
        STEP: "the accuracy of similar answers",
    }
    yield ""
    yield f"{'Why':<36}{'logit':>8}  probability"
    total = 0.0
    for name, part in evidence["parts"].items():
        total += part
        yield f"  {words.get(name, name):<34}{part:>+8.2f}  {expit(np.array([total]))[0]:>11.2f}"
    if evidence["lacking"]:
        yield f"  not given: {', '.join(evidence['lacking'])} (--column-value NAME=VALUE)"
    if evidence["nearest"]:
        yield ""
        yield "The most similar examples stored in the model:"
    for example in evidence["nearest"]:
        outcome = "correct" if example["correct"] else "wrong"
        question, answer = (" ".join(example[name].split()) for name in ("question", "answer"))
        yield f"  {outcome}, stated {example['confidence']:.2f}: {_short(question)} - {_short(answer)}"


def _short(text: str) -> str:
    return printable(text if len(text) <= 60 else f"{text[:57]}...")


def _group(model: QACalibrator, name: Any) -> str:
    groups = {group.group: group for group in model.describe_groups()}
    if name not in groups:
        unknown = "unknown to the model, and not among the answers of the interval"
        return unknown if groups else "none; this model has no groups"
    group = groups[name]
    words = f" ({', '.join(group.words[:6])})" if group.words else ""
    rows = counted(group.rows, "row")
    return f"{name}{words}: {rows}, accuracy {group.accuracy:.2f}, stated {group.confidence:.2f}"
