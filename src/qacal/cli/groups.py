"""`qacal groups`: the groups of a model, with words and examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

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
    The default model also certifies the accuracy of all answers of a group: "certified" is its interval.

    \b
        qacal groups model
        qacal groups model --examples 2
    """
    from qacal.model.saved import load

    models = load(model)._models
    if json:
        content = {str(value): _to_dicts(one) for value, one in models.items()}
        print(options.json_text(content["None"] if None in models else content))
        return
    for value, one in models.items():
        _print("" if value is None else f"{value}: ", one, examples)


def _intervals(model: QACalibrator) -> dict[Any, tuple[float, float]]:
    """Return the certified interval of each group's accuracy; empty if the model certifies something else."""
    from qacal.calibrators.margins import MarginMaps

    maps = model.calibrator_.maps_
    return maps.group_intervals() if isinstance(maps, MarginMaps) else {}


def _to_dicts(model: QACalibrator) -> list[dict[str, Any]]:
    intervals, out = _intervals(model), []
    for group in model.describe_groups():
        low, high = intervals.get(group.group, (None, None))
        out.append(group.to_dict() | {"low": low, "high": high})
    return out


def _print(title: str, model: QACalibrator, examples: int) -> None:
    groups = model.describe_groups()
    if not groups:
        options.show(f"{title}this model has no groups.")
        return
    intervals = _intervals(model)
    shown = {name: f"{low:.2f} to {high:.2f}" for name, (low, high) in intervals.items()}
    rows = [
        (
            str(group.group),
            f"{group.rows:,}",
            f"{group.accuracy:.2f}",
            *([shown.get(group.group, "none")] if intervals else []),
            f"{group.confidence:.2f}",
            " ".join(group.words),
        )
        for group in groups
    ]
    certifying = counted(model.rows_, "certifying row" if model.calibrator_.properties.is_certified else "row")
    training = ""
    if model.learned_score_ is not None:
        training = f" (the score was trained on {model.learned_score_.rows_:,} rows)"
    caption = f"{title}{counted(len(groups), 'group')} with {certifying} in all{training}"
    certified = ["certified"] if intervals else []
    options.show_table(caption, ("group", "rows", "accuracy", *certified, "stated", "words"), rows)
    if intervals:
        sure = 100 * (1 - model.calibrator_.maps_.parameters()["alpha"])
        which = "future ones too" if model.learned_score_ is not None else "with stated confidences as in the fit"
        options.show(
            f"certified: the accuracy of all answers of the group, {which}. With probability {sure:.4g}%, all "
            "intervals of this model hold at once."
        )
    for group in groups if examples else []:
        options.show(f"group {group.group}")
        for example in group.examples[:examples]:
            right = {1.0: "correct", 0.0: "wrong"}.get(example["correct"], f"correct {example['correct']:g}")
            options.show(f"  {_short(example['question'])} -> {_short(example['answer'])}")
            options.show(f"    stated {example['confidence']:g}, {right}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."
