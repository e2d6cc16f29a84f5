"""`qacal experiment`: the paper's protocol on a file of labelled answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qacal.cli import options

if TYPE_CHECKING:
    from qacal.experiment import Experiment


def run(
    file: options.Rows,
    out: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder for the results.")],
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Separate results for every value, such as model or model,dataset."),
    ] = None,
    group_column: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Also measure errors within this column; no method sees it."),
    ] = None,
    embedder: Annotated[
        str, typer.Option(help="As in qacal fit, or several with commas; column:NAME for precomputed vectors.")
    ] = "static",
    partition: Annotated[
        str,
        typer.Option(
            help="Groups to search: kdtree, bisecting or kmeans, with :MAX for the largest depth or number; "
            "column:NAME; kdtree:10:coordinate splits raw coordinates, as in the paper. Several with commas."
        ),
    ] = "kdtree",
    ties: options.TiesOption = "merge",
    seeds: Annotated[int, typer.Option(metavar="NUMBER", min=1, help="Number of random splits.")] = 8,
    objective: Annotated[str, typer.Option(help="Tune by log-loss, brier, auac or error.")] = "log-loss",
    search: Annotated[
        str, typer.Option(help="Points per bin to try: paper (they guarantee --epsilon), wide (from 10 up), or auto.")
    ] = "auto",
    epsilon: Annotated[float, typer.Option(help="The error that points per bin must guarantee.")] = 0.1,
    alpha: Annotated[float, typer.Option(help="Probability that the guarantee fails.")] = 0.1,
    allow_mixed: Annotated[
        bool, typer.Option("--allow-mixed", help="Treat several LLMs, prompts, confidence sources and judges as one.")
    ] = False,
    column: options.Columns = None,
    percent: options.Percent = False,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Compare calibration methods by the paper's protocol.

    It runs the protocol of the QA-calibration paper on your answers. The questions are split into four parts: 20% make
    the groups, 60% fit the methods, 10% choose groups and points per bin, and the last 10% measure the result; eight
    times. It writes results.md (tables in the paper's layout), results.parquet (every number) and report.html.

    \b
        qacal experiment answers.parquet -o results
        qacal experiment answers.parquet -o results --by model,dataset --group-column subject
        qacal experiment answers.parquet -o results --embedder column:embedding --objective auac
        qacal experiment answers.parquet -o results --embedder static,minilm --partition kdtree,kmeans
        qacal experiment answers.parquet -o results --partition kdtree:10:coordinate --ties jitter --objective auac
    """
    from qacal.experiment import run_experiment
    from qacal.experiment.runner import require_own_folder
    from qacal.report.experiment_page import experiment_page
    from qacal.search import OBJECTIVES

    objective = options.chosen("--objective", objective, list(OBJECTIVES))
    search = options.chosen("--search", search, ["auto", "paper", "wide"])
    ties = options.chosen("--ties", ties, ["merge", "jitter"])
    options.require_apart(file, out, skip_bad_rows)
    require_own_folder(out)
    partitions = _listed(partition)
    for name in partitions:
        options.require_partition(name)
    with options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression) as (rows, reading, progress):
        results = run_experiment(
            rows,
            by=_listed(by),
            label=group_column,
            embedders=_listed(embedder),
            partitions=partitions,
            ties="jitter" if ties == "jitter" else "merge",
            seeds=seeds,
            objective=objective,
            search=search,
            epsilon=epsilon,
            alpha=alpha,
            allow_mixed=allow_mixed,
            reading=reading,
            progress=progress,
        )
        title = "standard input" if file == "-" else Path(file).name
        page = experiment_page(results, f"Calibration methods on {title}", progress)
    results.write(out, {"report.html": page})
    _show(results)
    options.note(f"Written to {out}: results.md, results.parquet and report.html.")


def _listed(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]


# These columns do not fit on a screen; results.md has all.
_LEFT_OUT = ("ce", "ce_debiased", "mce_beta", "ce_label", "ce_label_floor")


def _show(results: Experiment) -> None:
    from qacal.experiment.runner import called

    for note in (*results.notes, *(f"{called(name, results.by)}: {text}" for name, text in results.ranges.items())):
        options.note(note)
    captions = [(table.names, table) for table in results.tables()]
    captions += [(("all blocks", *table.names), table) for table in results.overview()]
    for names, table in captions:
        shown = [place for place, column in enumerate(table.columns) if column.name not in _LEFT_OUT]
        titles = [table.titles[len(table.names) + 1 + place] for place in shown]
        rows = []
        for line in table.lines:
            cells = [f"{line.cells[place].mean:.3f}{'*' if line.cells[place].is_best else ' '}" for place in shown]
            rows.append((line.method, *cells, *line.chosen))
        options.show_table(", ".join(names), ("", *titles, "groups", "b"), rows)
    options.show(
        "Means over seeds; lower is better, except for AUAC; * marks the best. Rank by debiased errors, Brier score "
        "and log loss: the plug-in CE(h;β) is mostly noise, as its noise floor shows."
    )
