"""`qacal documents`: the share of correct rows in each document."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options


def run(
    model: options.Model,
    labelled: Annotated[
        str, typer.Argument(metavar="LABELLED", help="Documents with `correct`, which were not in the fit.")
    ],
    file: options.Rows,
    output: options.Output = "-",
    alpha: Annotated[
        float, typer.Option(help="Probability that the interval of a document does not contain its share.")
    ] = 0.1,
    allow_other_source: options.AllowOtherSource = None,
    json: options.Json = False,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Estimate the share of correct rows in each document.

    A document is all rows with one id: the fields of an extraction, the claims of an answer, the turns of a chat. The
    output has a row for each document of FILE: id, rows, expected (the mean of the calibrated confidences), low and
    high.

    If a document is like those in LABELLED, its interval contains the share of its rows that are correct with
    probability 1 - alpha. This is about each document by itself, not about all of them at once. LABELLED needs at least
    1/alpha - 1 documents (9 for 0.1), with a label in every row; others are left out, with a warning. Documents of the
    fit, and documents in both files, are refused.

    With a set of models (qacal fit --by model), each LLM has its own documents: the output also has the column model,
    and the intervals of an LLM come from its own labelled documents.

    \b
        qacal documents model labelled.jsonl new.jsonl -o documents.csv
        qacal documents model labelled.jsonl new.jsonl --alpha 0.2
    """
    from qacal.guarantee import check_alpha
    from qacal.model.documents import documents_frame
    from qacal.model.saved import load
    from qacal.records.table import as_table

    with options.usage_errors():
        check_alpha(alpha)
    options.require_apart(labelled, file, output, skip_bad_rows)
    options.require_writable(output)
    options.require_free_output(json, output)
    loaded = load(model, embedder=embedder)
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with options.opened(labelled) as known, reads as (rows, reading, progress):
        known_reading = loaded._reading(known, options.mapping(column), percent, options.expressions(expression))
        frame, count = documents_frame(
            loaded,
            known,
            rows,
            known_reading,
            reading,
            alpha=alpha,
            allow_other_source=allow_other_source or (),
            progress=progress,
        )
        with options.open_output(output, rows) as writer:
            writer.write(as_table(frame))
    expected = float(frame["expected"].to_numpy().mean())
    if json:
        content = {"file": output, "documents": len(frame), "labelled": count, "alpha": alpha, "expected": expected}
        print(options.json_text(content))
    elif output != "-":
        options.note(
            f"{len(frame):,} documents written to {output}; the mean expected share of correct rows is {expected:.3f}."
        )
        options.note(
            f"Intervals come from {count:,} labelled documents. Each contains the share of its document with "
            f"probability {1 - alpha:g}."
        )
