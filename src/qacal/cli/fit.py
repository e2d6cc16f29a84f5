"""`qacal fit`: from a file of labelled answers to a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json import loads
from pathlib import Path
from shlex import quote
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from qacal.cli import options, progress_line
from qacal.errors import InputError

if TYPE_CHECKING:
    from qacal.calibrators.base import Calibrator
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import ModelSet
    from qacal.model.pipeline import Progress
    from qacal.records.reading import ReadAs, Reading

# A larger set of models is printed as a table with a line for each model.
_MODELS_IN_FULL = 3

# The options of a fit to tallies; all others are about rows.
_OF_TALLIES = {
    *("context", "files", "output", "partition", "calibrator", "points_per_bin", "ties", "alpha", "within", "bands"),
    *("allow_mixed", "json", "column", "percent", "expression", "engine", "address"),
}

_CALIBRATORS = {
    "tree-binning": "TreeBinning",
    "scaling-qa-binning": "ScalingQABinning",
    "qa-binning": "QABinning",
    "hierarchical-scaling": "HierarchicalScaling",
    "tree-scaling": "TreeScaling",
    "margin-binning": "MarginBinning",
    "step-binning": "StepBinning",
    "uniform-mass-binning": "UniformMassBinning",
    "scaling-binning": "ScalingBinning",
    "platt-scaling": "PlattScaling",
    "isotonic-calibration": "IsotonicCalibration",
    "identity": "Identity",
}


def run(
    context: typer.Context,
    output: Annotated[str, typer.Option("--output", "-o", metavar="MODEL", help="Folder for the model.")],
    files: options.FilesOrStore = None,
    embedder: Annotated[
        str, typer.Option(help="static (fast), minilm (better, slower), onnx:DIR, hf:ID, or column:NAME.")
    ] = "static",
    partition: Annotated[
        str | None,
        typer.Option(
            help="Groups: bisecting:DEPTH, kdtree:DEPTH, kdtree:DEPTH:coordinate "
            "(raw coordinates, as in the paper), kmeans:N, column:NAME, or a product: a*b. Default: a "
            "bisecting tree."
        ),
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option(
            help="Calibration method. Default: a score trained on confidence and text, certified by probability and by "
            "group (margin-binning); for --partition column:NAME, curves of the confidence in place of the score. To "
            "certify each probability within each group: step-binning, and tree-binning for --partition column:NAME. "
            f"All methods: {', '.join(_CALIBRATORS)}."
        ),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column for the score to read; COLUMN:KIND if its values do not tell the kind: numeric, category, "
            "confidence, logprobs or context. May be repeated. Default: all columns are tried, and used if they help.",
        ),
    ] = None,
    no_columns: Annotated[bool, typer.Option("--no-columns", help="Try no columns but those of --feature.")] = False,
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Train on all rows and output the score itself, without intervals."),
    ] = False,
    points_per_bin: Annotated[
        int | None, typer.Option(help="Rows in a bin, for calibrators that count them (default 50); see qacal plan.")
    ] = None,
    ties: options.TiesOption = "merge",
    alpha: Annotated[float, typer.Option(help="Probability that at least one interval of the model is wrong.")] = 0.1,
    within: Annotated[
        float | None,
        typer.Option(
            help="How wide intervals may be for half of the answers: 0.1 allows more bands and groups than 0.05; see "
            "qacal plan."
        ),
    ] = None,
    bands: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of bands of similar scores; by default more rows make more bands. With a fixed number, more "
            "rows always make intervals narrower.",
        ),
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(
            metavar="OBJECTIVE",
            help="Tune the score by log-loss or brier; with --calibrator, tune depth and points per bin by "
            "log-loss, brier, auac or error.",
        ),
    ] = None,
    group_rows: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Make the groups from these rows, which need no labels."),
    ] = None,
    certify: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Certify on these rows, labelled by people, and train on the others, labelled by a judge.",
        ),
    ] = None,
    judge_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="With --certify: the column of its rows with the judge's labels. A good judge narrows the intervals.",
        ),
    ] = None,
    train_share: Annotated[
        float | None,
        typer.Option(
            help="Share of the questions that train the score: 0.9, with step-binning 0.8; without a score, the share "
            "that makes groups: 0.25."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="One model for each value of this column, usually model: the LLM's name."),
    ] = None,
    allow_mixed: Annotated[
        bool,
        typer.Option(
            "--allow-mixed",
            help="One model for rows of several LLMs, prompts, confidence sources and judges, whichever are mixed.",
        ),
    ] = False,
    examples: Annotated[int, typer.Option(help="Number of example rows to store for each group.")] = 3,
    seed: Annotated[int, typer.Option(help="Random seed of the split.")] = 0,
    store: options.StoreOrFile = None,
    name: options.ServedName = None,
    since: options.Since = None,
    from_: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="MODEL",
            help="Certify this model on tallies of other rows (qacal tally --model). Its parts and settings stay.",
        ),
    ] = None,
    sample_rows: Annotated[
        int | None,
        typer.Option(
            min=100,
            help="For many rows: train on a random sample of about this many labelled ones, and certify on all others. "
            "Default: 50,000.",
        ),
    ] = None,
    ids: Annotated[
        Literal["check", "documents", "ignore"],
        typer.Option(
            help="For many rows. A fit of texts counts rows with one id as one document, but for ignore, which takes "
            "them as independent. With groups of a column: as in qacal tally."
        ),
    ] = "check",
    json: options.Json = False,
    column: options.Columns = None,
    percent: options.Percent = False,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
    engine: options.EngineOption = "local",
    address: options.Address = None,
) -> None:
    """Train a model on labelled answers.

    The rows need question, answer, confidence and correct. A column id keeps the rows of one question together. 90% of
    the questions train a score on confidence and text. 30% of all questions fix bands of similar answers and groups,
    and the other 70% certify these: how far off the answers of a band are on average, and how accurate those of a group
    are.

    \b
        qacal fit answers.parquet -o model
        qacal fit answers.parquet -o model --feature confidence_tokens:confidence
        qacal fit answers.parquet -o model --feature tenant --feature retrieval_score:numeric
        qacal fit answers.csv -o model --partition column:subject --column confidence=score --percent
        qacal fit answers.parquet -o model --tune log-loss
        qacal fit answers_of_many_llms.jsonl -o models --by model
        qacal fit judged.parquet -o model --certify labelled_by_people.parquet
        qacal fit logs/ -o model --engine daft
        qacal fit monday.tally.parquet tuesday.tally.parquet -o model

    Of many Parquet files, a random sample trains, and all other labelled rows certify. Tallies (qacal tally) of any
    number of days or sites are fitted as one.

    With --store, the rows are answers that qacal serve --collect stored and that have a label of an audit (qacal
    label-next --store). A running service loads the model when it is saved.

    \b
        qacal fit --store sqlite:///qacal-served.db -o model
    """
    from qacal.model.defaults import default_pipeline
    from qacal.model.fitting import FitInputs
    from qacal.model.model import QACalibrator
    from qacal.model.model_set import fit_set

    files = _listed(files or [])
    file = files[0] if files else None
    options.require_one_source(file, store, name, since)
    if store is not None and (column or percent or expression or skip_bad_rows):
        raise typer.BadParameter("--column, --percent, --expression and --skip-bad-rows are about a file of rows.")
    options.require_apart(*files, output, skip_bad_rows, certify, group_rows)
    options.require_folder(output.rstrip("/"))
    is_job = options.is_job(files, engine, address) or sample_rows is not None
    are_tallies = [_is_tally(one) for one in files]
    if is_job or any(are_tallies):
        others = {"--by": by, "--certify": certify, "--group-rows": group_rows, "--tune": tune, "-": "-" in files}
        for option, is_given in {**others, "--continuous": continuous, "--store": store}.items():
            if is_given:
                raise typer.BadParameter(f"{option} does not go with many files or tallies; fit on one file of rows.")
    if not all(are_tallies) and (any(are_tallies) or from_ is not None):
        what = "--from takes tallies" if from_ is not None else "rows and tallies do not mix: count the rows, too"
        raise typer.BadParameter(f"{files[are_tallies.index(False)]} has no tally; {what} (qacal tally).")
    if from_ is not None and Path(from_).resolve() == Path(output).resolve():
        raise typer.BadParameter("-o is the model of --from, which later tallies need, too; name another folder.")
    if from_ is not None:
        _require_unset(
            context,
            {"embedder", "files", "output", "from_", "allow_mixed", "json", "engine", "address"},
            "its parts and settings are those of --from",
        )
    elif any(are_tallies):
        _require_unset(context, _OF_TALLIES, "the rows of a tally have been counted")
    for option, value in (("--alpha", alpha), ("--within", within), ("--train-share", train_share)):
        if value is not None and not 0 < value < 1:
            raise typer.BadParameter(f"{option} is {value:g}; expected a number between 0 and 1.")
    if partition is not None:
        options.require_partition(partition)
    if certify is not None and (by is not None or train_share is not None):
        raise typer.BadParameter("--certify trains one model on all other rows; leave out --by and --train-share.")
    if judge_column is not None and certify is None:
        raise typer.BadParameter("--judge-column names a column of the rows of --certify; pass both, or none.")
    if continuous and (group_rows is not None or train_share is not None):
        raise typer.BadParameter(
            "--continuous makes no groups and no intervals; leave out --group-rows and --train-share."
        )
    objective = None
    if tune is not None:
        from qacal.search import OBJECTIVES

        objective = options.chosen("--tune", tune, list(OBJECTIVES))
    ties = options.chosen("--ties", ties, ["merge", "jitter"])
    if continuous and (calibrator is not None or ties != "merge" or within is not None or bands is not None):
        raise typer.BadParameter(
            "--continuous outputs the score itself; leave out --calibrator, --ties, --within and --bands."
        )
    model = QACalibrator(
        embedder,
        partition,
        None if calibrator is None else _calibrator(calibrator),
        features=tuple(feature or ()) if feature or no_columns else "auto",
        output="continuous" if continuous else "certified",
        train_share=train_share,
        examples=examples,
        seed=seed,
    )
    parts = default_pipeline(model, has_certify_records=certify is not None and judge_column is None)
    if objective not in (None, "log_loss", "brier") and calibrator is None and parts.score is not None:
        raise typer.BadParameter(f"--tune {tune} needs --calibrator; without one, pass --tune log-loss or brier.")
    model.set_params(tune=objective)
    if not continuous:
        # The default calibrator, so that --alpha can be set on it.
        model.set_params(calibrator=_with_settings(parts.calibrator, points_per_bin, alpha, ties, within, bands))
    began = monotonic()
    if is_job or any(are_tallies):
        from qacal.cluster.jobs import Job
        from qacal.cluster.running import SAMPLE_ROWS, clean_up, fit_files
        from qacal.records.reading import ReadAs

        with options.job_runs(engine, address, skip_bad_rows) as where:
            fit: QACalibrator | ModelSet
            read = {}
            if any(are_tallies):
                read_as = ReadAs(options.mapping(column), percent, options.expressions(expression))
                fit = _from_tallies(model, files, from_, embedder, read_as, allow_mixed=allow_mixed)
            else:
                how = options.job_reading(files, column, percent, expression, skip_bad_rows, max_bad)
                job, most = Job("tally", ids=ids, **how), sample_rows or SAMPLE_ROWS
                fit, outcome = fit_files(model, files, output, job, where, sample_rows=most, allow_mixed=allow_mixed)
                options.tell_outcome(outcome, outcome.rows, "read", skip_bad_rows)
                if outcome.sampled:
                    options.note(
                        f"A random sample of {outcome.sampled:,} rows trains. Part of it certifies, and so do all "
                        "other labelled rows."
                    )
                read = {"rows_read": outcome.rows, "bad_rows": outcome.bad}
        lost_threshold = _has_threshold(output)
        fit.save(output)
        if not any(are_tallies):
            clean_up(output)
        account = {**options.run_summary(None, began, output), **read} if json else None
        for line in _mixtures(fit) if allow_mixed else ():
            options.note(line)
        _show_fit(fit, output, None, lost_threshold, account, is_certified_apart=from_ is not None)
        _print_next("new.parquet", output, by, used=(), skips=False)
        return
    given = (
        options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression)
        if file is not None
        else _stored_rows(str(store), output, name, options.seconds(since))
    )
    with given as (rows, reading, progress):
        if by is None:
            inputs = FitInputs(rows, reading, group_rows, certify, allow_mixed, judge_column=judge_column)
            fit = model._fit_inputs(inputs, progress)
        else:
            fit = fit_set(
                model, rows, by, reading, group_records=group_rows, allow_mixed=allow_mixed, progress=progress
            )
        lost_threshold = _has_threshold(output)
        fit.save(output)
    origin = file or "the store"
    equal = _equal_labels(fit, [origin] if certify is None else [origin, certify])
    for line in (*equal, *(_mixtures(fit) if allow_mixed else ())):
        options.note(line)
    account = options.run_summary(reading, began, output) if json else None
    _show_fit(fit, output, by, lost_threshold, account, is_certified_apart=certify is not None)
    if file is None:
        options.note(f"Saved to {output}. A running qacal serve {quote(output)} --collect loads it.")
    else:
        _print_next(file, output, by, used=(certify, group_rows), skips=skip_bad_rows is not None)


def _require_unset(context: typer.Context, allowed: set[str], reason: str) -> None:
    """Raise if an option is given that the command would ignore."""
    for option in context.command.params:
        source = context.get_parameter_source(str(option.name))
        if option.name not in allowed and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(f"{option.opts[0]} would have no effect: {reason}. Leave it out.")


def _listed(files: list[str]) -> list[str]:
    """Return the files that are named; those of folders and patterns one by one, if they are tallies."""
    from qacal.cluster.parts import expanded, is_url

    if not files or any(map(is_url, files)):
        return files
    try:
        found = [*expanded(files)]
    except InputError:
        if any(map(_is_tally, files)):
            raise
        return files  # what is wrong is told where the rows are read
    return found if _is_tally(found[0]) else files


def _is_tally(file: str) -> bool:
    if not file.endswith((".parquet", ".pq")):
        return False
    from qacal.model.tallies import is_tally

    return is_tally(file)


def _from_tallies(
    model: QACalibrator, files: Sequence[str], from_: str | None, embedder: str, read_as: ReadAs, *, allow_mixed: bool
) -> QACalibrator:
    """Fit to tallies: of a column of groups, or of rows that another model counted."""
    from qacal.model.samples import MOST_CELLS
    from qacal.model.saved import load_one
    from qacal.model.tallies import Counted, fit_column, recertified
    from qacal.storage import version_of

    total = Counted.sum(map(Counted.read, files), MOST_CELLS)
    if from_ is None:
        if total.model is not None:
            raise typer.BadParameter("a model counted these rows; name it with --from.")
        return fit_column(model, total, allow_mixed=allow_mixed, read_as=read_as)
    first = load_one(from_, embedder=None if embedder == "static" else embedder)
    return recertified(first, version_of(from_), total, allow_mixed=allow_mixed)


def _show_fit(
    fit: QACalibrator | ModelSet,
    output: str,
    by: str | None,
    lost_threshold: bool,
    account: dict[str, Any] | None,
    *,
    is_certified_apart: bool,
) -> None:
    """Print what was fitted; as JSON if there is an account of the run."""
    from qacal.model.summary import described

    if account is not None:
        content = {str(value): _to_dict(one) for value, one in fit._models.items()}
        fitted = content["None"] if by is None else {"models": content}
        print(options.json_text({"model": output, "run": account, **fitted}))
    elif len(fit._models) > _MODELS_IN_FULL:
        _show_set(fit._models, str(by))
    else:
        for value, one in fit._models.items():
            title = "" if by is None else f"{by} {value}: "
            options.show(title + described(one, is_certified_apart=is_certified_apart))
    if lost_threshold:
        options.note("The replaced model had a threshold; this one has none (qacal threshold).")


@contextmanager
def _stored_rows(
    store: str, output: str, name: str | None, since: float | None
) -> Iterator[tuple[Any, Reading, Progress | None]]:
    """Yield the labelled rows of a store, how to read them, and a callback for progress."""
    from qacal.records.reading import Reading
    from qacal.records.table import as_table
    from qacal.service.learning import first_sample, name_in, opened

    with opened(store) as answers:
        rows, notes = first_sample(answers, name_in(answers, output, name), since)
    for note in notes:
        options.note(note)
    with progress_line.showing() as progress:
        yield as_table(rows, "the store"), Reading(), progress


def _calibrator(name: str) -> Calibrator:
    import qacal

    if name not in _CALIBRATORS:
        raise typer.BadParameter(f"there is no calibrator {name!r}; there are {', '.join(_CALIBRATORS)}.")
    calibrator: Calibrator = getattr(qacal.calibrators, _CALIBRATORS[name])()
    return calibrator


def _with_settings(
    calibrator: Calibrator,
    points_per_bin: int | None,
    alpha: float,
    ties: str,
    within: float | None,
    bands: int | None,
) -> Calibrator:
    """Set the options of the command that a calibrator has; the others must be left at their defaults."""
    params = calibrator.get_params()
    name = next(name for name, kind in _CALIBRATORS.items() if kind == type(calibrator).__name__)
    if points_per_bin is not None and "points_per_bin" not in params:
        raise typer.BadParameter(
            f"{name} does not count points per bin; leave out --points-per-bin, or use qa-binning."
        )
    if within is not None and "within" not in params:
        raise typer.BadParameter(f"{name} does not choose the width of its intervals; leave out --within.")
    if bands is not None and "bands" not in params:
        raise typer.BadParameter(f"{name} has no bands; leave out --bands.")
    if ties == "jitter" and "ties" not in params:
        raise typer.BadParameter(
            f"{name} does not divide equal confidences; leave out --ties, or use --calibrator qa-binning, "
            "scaling-qa-binning, uniform-mass-binning or scaling-binning."
        )
    settings: dict[str, Any] = {"alpha": alpha, "ties": ties, "cross_fit": True, "within": within, "bands": bands}
    if points_per_bin is not None:
        settings["points_per_bin"] = points_per_bin
    return calibrator.set_params(**{name: value for name, value in settings.items() if name in params})


def _print_next(file: str, output: str, by: str | None, *, used: Sequence[str | None], skips: bool) -> None:
    """Print the commands that come next.

    used : other files of this fit; they are not held out.
    """
    from qacal.records.writers import ending_of, held_out_name

    options.note(f"Saved to {output}{'' if by is None else f', one model for each value of the column {by}'}.")
    output, held_out = quote(output), held_out_name(file)
    apply = f"    qacal apply {output} new{ending_of(file)} -o calibrated{ending_of(file)}"
    is_used = held_out is not None and Path(held_out).resolve() in {Path(path).resolve() for path in used if path}
    if held_out is not None and Path(held_out).exists() and not is_used:
        extra = "" if by is None else f" --by {by}"
        extra += " --skip-bad-rows bad_test.jsonl" if skips else ""
        options.note("Next: evaluate it on held-out rows, and apply it to new ones:")
        options.note(f"    qacal evaluate {quote(held_out)} --model {output}{extra}\n{apply}")
    else:
        options.note(f"Next: apply it to new answers:\n{apply}")
        options.note("To evaluate it, use labelled rows of other questions; qacal split holds out some before a fit.")


# What is printed


def _show_set(models: dict[Any, QACalibrator], by: str) -> None:
    """Print a table with a line for each model."""
    has_losses = any(model.learned_score_ is not None for model in models.values())
    losses = ("log loss before", "log loss after") if has_losses else ()
    options.show_table(
        f"{len(models):,} models, one for each value of the column {by}",
        (by, "labelled rows", *losses, "certified within"),
        [(str(value), *_cells(model, has_losses)) for value, model in models.items()],
    )
    if has_losses:
        options.show(
            "log loss: of the stated confidence and of the score, by cross-validation, cut at 0.001; lower is better."
        )
    options.show(
        "certified within: for half of the answers, the accuracy of similar answers is within this distance of the "
        "calibrated probability; no: the distance is 0.5 or more, which says nothing."
    )


def _cells(model: QACalibrator, has_losses: bool) -> list[str]:
    from qacal.calibrators.maps import BinMaps
    from qacal.calibrators.margins import MarginMaps

    score, maps = model.learned_score_, model.calibrator_.maps_
    tried = () if score is None else score.tried_
    losses = [trial.log_loss for trial in (*tried[:1], *(trial for trial in tried if trial.is_chosen))]
    shown = [f"{loss:.4f}" for loss in losses] or ["", ""]
    bound = maps.median_error_bound() if isinstance(maps, BinMaps | MarginMaps) else 0.5
    return [
        f"{sum(overview.rows for overview in model.overviews_):,}",
        *(shown if has_losses else []),
        f"{bound:.2f}" if bound < 0.5 else "no",
    ]


def _to_dict(model: QACalibrator) -> dict[str, Any]:
    """Return what was fitted, for JSON; `tried` are the candidates that cross-validation compared."""
    from dataclasses import asdict

    from qacal.calibrators.maps import BinMaps
    from qacal.calibrators.margins import MarginMaps
    from qacal.metrics.evaluation import without_nan
    from qacal.model.summary import interval_readers

    maps, score = model.calibrator_.maps_, model.learned_score_
    out: dict[str, Any] = {
        "calibrator": type(model.calibrator_).__name__,
        "rows": model.rows_,
        "groups": len(model.describe_groups()),
        "score": None if score is None else score.chosen,
        "rows_learned_from": None if score is None else score.rows_,
        "tried": [] if score is None else [asdict(trial) for trial in score.tried_],
    }
    if isinstance(maps, MarginMaps):
        out |= {
            "alpha": float(maps.certificate.alpha),
            "median_epsilon_of_a_row": maps.median_error_bound(),
            "bands": maps.n_bands,
            "groups_with_intervals": maps.n_groups,
            "median_half_width_of_a_group": maps.median_group_width(),
            "widths": [asdict(one) for one in model.widths_],
        }
    elif isinstance(maps, BinMaps):
        own, larger, all_rows = interval_readers(maps)
        out |= {"alpha": float(maps.certificate.alpha), "median_epsilon_of_a_row": maps.median_error_bound()}
        out["certificates"] = {"own": own, "of_a_larger_group": larger, "of_all_rows": all_rows}
    return dict(without_nan(out))


def _mixtures(fit: QACalibrator | ModelSet) -> Iterator[str]:
    """Yield a line for each model that was fitted on rows of several LLMs, prompts, confidence sources or judges."""
    from qacal.records.provenance import mixture

    lines = []
    for value, model in fit._models.items():
        known = [model.origins_, *(overview.sources.known() for overview in model.overviews_)]
        every = {name: [*dict.fromkeys(one for part in known for one in part.get(name, ()))] for name in known[0]}
        if several := mixture(every):
            lines.append(f"Note: {'' if fit._by is None else f'{fit._by} {value}: '}one model for several {several}.")
    yield from lines[:_MODELS_IN_FULL]
    if len(lines) > _MODELS_IN_FULL:
        yield f"Note: {len(lines) - _MODELS_IN_FULL:,} more models are for several."


def _equal_labels(fit: QACalibrator | ModelSet, files: Sequence[str]) -> Iterator[str]:
    """Yield a line for each set of rows that all have the same label: a model cannot learn from them.

    files : the rows that train and those that certify, if they are two.
    """
    lines = []
    for value, model in fit._models.items():
        title = "" if fit._by is None else f"{fit._by} {value}: "
        for overview, file in zip(model.overviews_, files, strict=False):
            label = overview.only_label
            if label is not None:
                names = {1.0: ("correct", "wrong"), 0.0: ("wrong", "correct")}
                what, when = names.get(label, (f"labelled {label:g}", "wrong"))
                where = "" if len(files) == 1 else f" of {file}"
                lines.append(
                    f"Note: {title}all {overview.rows:,} rows{where} are {what}; a model cannot learn when the LLM is "
                    f"{when}."
                )
    yield from lines[:_MODELS_IN_FULL]
    if len(lines) > _MODELS_IN_FULL:
        yield f"Note: {len(lines) - _MODELS_IN_FULL:,} more models have rows with equal labels."


def _has_threshold(path: str) -> bool:
    """Return whether the model at `path`, or one of a set there, has a threshold; False if it cannot be read."""
    try:
        index = Path(path) / "models.json"
        names = loads(index.read_bytes())["folders"] if index.is_file() else [""]
        documents = [loads((Path(path) / name / "model.json").read_bytes()) for name in names]
        return any(document["value"]["decision_rule"] is not None for document in documents)
    except (OSError, ValueError, KeyError, TypeError):
        return False
