"""`qacal refit`: a new version of a model, with labels of what it served."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options, progress_line
from qacal.errors import InputError, counted, some_of

if TYPE_CHECKING:
    from datetime import datetime

    from qacal.model.refitting import Refit
    from qacal.model.watching import Watch
    from qacal.service.store import Store
    from qacal.service.watch import Bets

_ALPHA = 0.1  # as in qacal watch, and in qacal serve unless it was started with another --watch-alpha
_FIGURES = {
    "certifying_rows": "rows that certify",
    "score_rows": "rows that train the score",
    "error_bound": "interval by probability, half of the answers",
    "bands": "bands",
    "group_width": "interval by group, half of the answers",
    "groups": "groups",
}


def run(
    model: options.Model,
    store: options.Store,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FOLDER", help="Save the new model here, and leave MODEL as it is."),
    ] = None,
    records: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The labelled rows of the first fit, which train, too. A model keeps none."),
    ] = None,
    texts: options.Texts = None,
    name: options.ServedName = None,
    since: options.Since = None,
    volunteered: Annotated[
        bool,
        typer.Option(
            "--volunteered", help="Train on volunteered labels, too: narrower intervals, and often worse probabilities."
        ),
    ] = False,
    allow_mixed: Annotated[
        bool,
        typer.Option("--allow-mixed", help="Accept answers of several LLMs, prompts, confidence sources and judges."),
    ] = False,
    drop_threshold: Annotated[
        bool,
        typer.Option("--drop-threshold", help="Replace a model that has a threshold; the new version has none."),
    ] = False,
    json: options.Json = False,
    embedder: options.Embedder = None,
) -> None:
    """Fit a served model again, with the labels of what it served.

    Settings are those of MODEL. Labels of audits, of answers that were drawn at random (qacal label-next --store),
    certify: the new intervals are about the served answers that were drawn from. The rows of --records only train. So
    do volunteered labels, with --volunteered: nobody knows how they were chosen. If answers were drawn with different
    chances, some are left out of the sample at random, so that all had the same chance; they train. After an alarm of
    qacal watch, leave --records out: answers are no longer like these rows.

    The new version takes the place of MODEL in one step, and a running qacal serve loads it. The old one is kept in
    MODEL.versions, and qacal versions puts it back. A new version has no threshold: a model with one is replaced only
    with --drop-threshold. To help to decide which to keep, both are shown side by side, with what the labels say about
    the intervals of the old one.

    \b
        qacal label-next model --store sqlite:///qacal-served.db -n 300 -o to_label.json
        qacal refit model --store sqlite:///qacal-served.db --records train.parquet
        qacal refit model --store sqlite:///qacal-served.db --texts log.jsonl --since 2026-10-01 -o new_model
    """
    from qacal.model.model import QACalibrator
    from qacal.model.refitting import refit
    from qacal.model.saved import load
    from qacal.model.summary import described, key_figures
    from qacal.model.versions import replaced
    from qacal.records.provenance import mixture
    from qacal.service.learning import labelled_answers, name_in, opened
    from qacal.service.watch import bets
    from qacal.storage import version_of

    target = output or model
    keeps_old = output is None or Path(output).is_file() or (Path(output).is_dir() and any(Path(output).iterdir()))
    options.require_folder(target)
    if keeps_old:
        version_of(target)  # what is no model is refused before the fit
    old = load(model, embedder=embedder)
    if not isinstance(old, QACalibrator):
        raise InputError(
            f"{model} is a set of models, and refit takes a single one. Fit the set again: qacal fit --by."
        )
    replaces = load(target)._models.values() if keeps_old else ()
    if any(one.decision_rule_ is not None for one in replaces) and not drop_threshold:
        raise InputError(
            f"{target} has a threshold, and a new version has none: a service would answer what it now abstains from. "
            "Save the new version elsewhere, choose its threshold on labelled answers that are not among those of the "
            f"refit, and put it in the place of {target}:\n    qacal refit ... -o new_model\n"
            "    qacal threshold new_model labelled.jsonl --accuracy 0.8 --save\n"
            f"    qacal versions {quote(target)} --put new_model\nOr pass --drop-threshold."
        )
    with opened(store) as rows:
        served = name_in(rows, model, name)
        answers, lacking = labelled_answers(rows, served, old, since=options.seconds(since), texts=texts)
        if since is not None and all(one.probability is None for one in answers):
            _require_later_labels(rows, served, since)
        unlabelled = rows.count_unlabelled_draws(served, options.seconds(since))
        # The labels of its own answers, which it was not fitted on.
        found_bets = bets(old, rows.bets(served, version_of(model), options.seconds(since)), (), _ALPHA)
    unused = 0
    if not volunteered:
        audits = [one for one in answers if one.probability is not None]
        unused, answers = len(answers) + lacking - len(audits), audits
    with progress_line.showing() as progress:
        found = refit(old, answers, records, allow_mixed=allow_mixed, progress=progress)
    before = None
    if keeps_old:
        before = replaced(target, found.model)
    else:
        found.model.save(target)
    version = version_of(target)[:12]
    watch, says = _watch_of(found_bets, since)
    figures = {"old": key_figures(old), "new": key_figures(found.model)}
    if json:
        counts = {one.name: getattr(found, one.name) for one in fields(found) if one.name != "model"}
        content = {"model": target, "version": version, "replaced": before, **counts}
        content |= {"volunteered_unused": unused, "drawn_without_label": unlabelled, **figures}
        labels, is_alarm = (0, False) if watch is None else (watch.labels, watch.is_alarm)
        told = {"labels": labels, "is_alarm": is_alarm, "text": says}
        print(options.json_text({**content, "old_watch": told}))
    else:
        options.show(described(found.model, is_refit=True))
        _compare(figures["old"], figures["new"], watch, says)
    for line in _notes(found, unused, lacking if volunteered else 0, unlabelled):
        options.note(line)
    if several := mixture(found.model.origins_):
        options.note(f"Note: one model for several {several}.")
    if records is not None and watch is not None and watch.is_alarm:
        options.note(
            "Note: the watch raised an alarm for the old version, so answers are no longer like the rows of --records, "
            "and probabilities are usually better if they are left out: refit again without --records."
        )
    if old.decision_rule_ is not None:
        put = "" if output is None else f"\n    qacal versions {quote(model)} --put {quote(output)}"
        options.note(
            "The old version had a threshold; this one has none, so it does not abstain. Choose one on labelled "
            "answers that are not among these:\n"
            f"    qacal threshold {quote(target)} labelled.jsonl --accuracy 0.8 --save{put}"
        )
    options.note(f"Saved to {target}, version {version}.")
    if before is not None:
        options.note(f"To put the old version back:\n    qacal versions {quote(target)} --put-back {before}")


def _require_later_labels(rows: Store, served: str, since: datetime) -> None:
    """Raise if --since leaves out all labels of audits."""
    every = rows.rows(labelled=True, model=served, columns=("label_source",))
    if earlier := sum(row["label_source"] == "audit" for row in every):
        labels = counted(earlier, "answer that was served before has one", "answers that were served before have one")
        raise InputError(
            f"no answer that was served since {since:%Y-%m-%d %H:%M} UTC (--since) has a label of an audit; {labels}. "
            "Choose an earlier --since, or label later answers: qacal label-next --store, with the same --since."
        )


def _watch_of(found: Bets, since: datetime | None) -> tuple[Watch | None, str]:
    """Return the watch of the old version, if labels test it, and what is to say about it."""
    part = found.parts[None]
    if isinstance(part, InputError):
        return None, str(part)
    if part[0].labels:
        return part[0], " ".join(filter(None, [part[0].headline, found.left_out()]))
    when = "" if since is None else f" since {since:%Y-%m-%d %H:%M} UTC"
    says = f"no label of an audit tests its answers{when}, so nobody knows whether its intervals hold."
    return None, " ".join(filter(None, [says, found.left_out()]))


def _compare(old: dict[str, Any], new: dict[str, Any], watch: Watch | None, says: str) -> None:
    """Print what the new version gives up and gains, and what labels say about the old one."""
    from qacal.planning import shown_bound

    rows = []
    for name, words in _FIGURES.items():
        shown = [
            "none" if value is None else f"±{shown_bound(value)}" if isinstance(value, float) else f"{value:,}"
            for value in (old[name], new[name])
        ]
        if shown != ["none", "none"]:
            rows.append((words, *shown))
    options.show_table("The old version and the new one", ("", "old", "new"), rows)
    if columns := [name for name in old["columns"] if name not in new["columns"]]:
        options.show(f"Columns that the new version no longer reads: {some_of(columns)}.")
    if watch is not None:
        if watch.is_alarm:
            says += " That speaks for the new one."
        elif None not in (old["error_bound"], new["error_bound"]) and new["error_bound"] > old["error_bound"]:
            says += " Its intervals are narrower: if answers have not changed, it may be the better one."
    options.show(f"The old version: {says}")
    options.show(
        "The old intervals are about answers like those of its fit, the new ones about served answers. Which version "
        "predicts better is not measured: these labels trained the new one. Only later labels can tell."
    )


def _notes(found: Refit, unused: int, lacking: int, unlabelled: int) -> list[str]:
    """Return which labels were used for what."""
    audited = counted(found.audited, "label of an audit", "labels of audits")
    out = [
        f"{audited}, {found.volunteered:,} volunteered and {counted(found.earlier, 'earlier row')}. Only labels of "
        f"audits certify: each answer was drawn with a chance of {found.probability:.3g}."
    ]
    if found.sample < found.audited:
        more = counted(found.audited - found.sample, "label of an audit only trains", "labels of audits only train")
        out.append(f"{more}, so that all answers had the same chance: they were drawn with different ones.")
    if found.repeated:
        rows = counted(found.repeated, "row was left out: its question is", "rows were left out: their questions are")
        out.append(f"{rows} in the sample of the audits.")
    if unused:
        out.append(f"{counted(unused, 'volunteered label was', 'volunteered labels were')} not used (--volunteered).")
    if lacking:
        labels = counted(lacking, "volunteered label was", "volunteered labels were")
        out.append(f"{labels} left out: the store has no texts of the answers (--texts).")
    if unlabelled:
        drawn = counted(
            unlabelled, "answer was drawn for labelling and has", "answers were drawn for labelling and have"
        )
        out.append(
            f"Note: {drawn} no label of an audit. If these are the hard ones, the intervals do not hold: label all "
            "that was drawn."
        )
    return out
