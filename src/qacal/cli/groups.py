"""`qacal groups`: the groups of a model, with words and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from qacal.cli import options
from qacal.errors import counted

if TYPE_CHECKING:
    from qacal.model.model import QACalibrator


def run(
    model: options.Model,
    examples: Annotated[int, typer.Option(help="Number of example rows to show for each group.")] = 0,
    json: options.Json = False,
) -> None:
    """List the kinds of questions that a model found.

    For each group: the number of certifying rows, their accuracy, the mean stated confidence, and characteristic words.

    \b
        qacal groups model
        qacal groups model --examples 2
    """
    from qacal.model.saved import load

    models = load(model)._models
    if json:
        content = {str(value): [group.to_dict() for group in one.describe_groups()] for value, one in models.items()}
        print(options.json_text(content["None"] if None in models else content))
        return
    for value, one in models.items():
        _print("" if value is None else f"{value}: ", one, examples)


def _print(title: str, model: QACalibrator, examples: int) -> None:
    groups = model.describe_groups()
    if not groups:
        options.show(f"{title}this model has no groups.")
        return
    rows = [
        (str(group.group), f"{group.rows:,}", f"{group.accuracy:.2f}", f"{group.confidence:.2f}", " ".join(group.words))
        for group in groups
    ]
    certifying = counted(model.rows_, "certifying row" if model.calibrator_.properties.is_certified else "row")
    training = ""
    if model.learned_score_ is not None:
        training = f" (the score was trained on {model.learned_score_.rows_:,} rows)"
    caption = f"{title}{counted(len(groups), 'group')} with {certifying} in all{training}"
    options.show_table(caption, ("group", "rows", "accuracy", "stated", "words"), rows)
    for group in groups if examples else []:
        options.show(f"group {group.group}")
        for example in group.examples[:examples]:
            right = {1.0: "correct", 0.0: "wrong"}.get(example["correct"], f"correct {example['correct']:g}")
            options.show(f"  {_short(example['question'])} -> {_short(example['answer'])}")
            options.show(f"    stated {example['confidence']:g}, {right}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."
