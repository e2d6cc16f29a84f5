"""`qacal label-next`: which answers to label."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import QacalError, counted


def run(
    model: options.Model,
    file: options.RowsOrStore = None,
    output: options.Output = "-",
    n: Annotated[int | None, typer.Option("-n", "--rows", min=1, help="How many rows to label. Default: 200.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Another seed draws other rows. Default: 0; with --store a new one for each draw."),
    ] = None,
    store: options.StoreOrFile = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="With --store: no new draw, but all that was drawn and has no label yet."),
    ] = False,
    name: options.ServedName = None,
    since: options.Since = None,
    allow_other_source: options.AllowOtherSource = None,
    json: options.Json = False,
    embedder: options.Embedder = None,
    column: options.Columns = None,
    percent: options.PercentAsFitted = None,
    expression: options.Expressions = None,
    skip_bad_rows: options.SkipBadRows = None,
    max_bad: options.MaxBad = 0.2,
) -> None:
    """Draw the answers to label next.

    A random sample of the answers in FILE, which need no labels: every range of the calibrated probability and every
    group of the model gets its share. All answers have the same chance, so everything that holds for a random sample
    holds for these rows, and no weights are needed. Do not add answers because they look wrong or unsure: intervals
    would no longer hold.

    New columns: stratum, a number from 1 to n, with one row drawn from each stratum, and label_probability, the chance
    that the row had. If ids repeat, one row of each id can be drawn. Rows of the fit are refused.

    \b
        qacal label-next model new.jsonl -n 200 -o to_label.jsonl

    \b
    Then add a column correct (0 or 1) to all rows of to_label.jsonl, and use it as a test file or to certify:
        qacal evaluate to_label.jsonl --model model
        qacal threshold model to_label.jsonl --accuracy 0.9 --save
        qacal fit train.jsonl --certify to_label.jsonl -o model
    In Python, qacal.metrics.estimate_accuracy gives an exact interval for the accuracy of all answers in FILE.

    With --store, it draws from what qacal serve stored: answers of the model that were not drawn before, of all its
    versions, with or without volunteered labels. qacal watch bets on the answers of one version: after a new one, draw
    with --since and its first day. It writes JSON for /v1/feedback, with a null for each label to fill in. The chance
    that each answer had is stored, too; qacal watch and qacal refit read it. Label all that was drawn: --again writes
    those that have no label yet once more. Answers that were served after an earlier draw have a smaller chance than
    those before it. All answers need the same chance to certify, so qacal refit leaves some labels out of the
    certificate; these train.

    \b
        qacal label-next model --store sqlite:///qacal-served.db -n 100 -o to_label.json
        curl http://127.0.0.1:8321/v1/feedback -H 'content-type: application/json' -d @to_label.json
    """
    options.require_one_source(file, store, name, since)
    if again and store is None:
        raise typer.BadParameter("--again goes with --store.")
    if again and (n, seed) != (None, None):
        raise typer.BadParameter("--again draws nothing, so it takes neither -n nor --seed.")
    n = n or 200
    if store is not None:
        _require_new_json(output)
        options.require_free_output(json, output)
        from qacal.service.learning import draw_answers, name_in, opened

        with opened(store) as kept:
            served, after = name_in(kept, model, name), options.seconds(since)
            if again:
                drawn = kept.unlabelled_draws(served, after)
            else:
                drawn = draw_answers(kept, served, n, seed=seed, since=after)
            version = _present_version(model)
            others = sum(row["model_version"] != version for row in drawn) if version else 0
            last = kept.last_of_others(served, version) if version and others else 0.0
        _write_drawn(drawn, output, json=json)
        if others:
            after_them = datetime.fromtimestamp(math.floor(last) + 1, UTC)
            answers = counted(others, "of these answers was", "of these answers were")
            options.note(
                f"{answers} served by other versions than the one in {model}. Their labels are for a refit; qacal "
                "watch bets on those of the present version. To draw only from these: --since "
                f"{after_them:%Y-%m-%dT%H:%M:%S}."
            )
        return
    assert file is not None
    from qacal.model.labelling import tables_to_label
    from qacal.model.saved import load

    seed = seed or 0
    options.require_apart(file, output, skip_bad_rows)
    options.require_writable(output)
    options.require_free_output(json, output)
    loaded = load(model, embedder=embedder)
    reads = options.input_rows(file, column, percent, skip_bad_rows, max_bad, expression, model=loaded)
    with reads as (rows, reading, progress), options.open_output(output, rows) as writer:
        for table in tables_to_label(
            loaded, rows, n, reading, seed=seed, allow_other_source=allow_other_source or (), progress=progress
        ):
            writer.write(table)
    if json:
        print(options.json_text({"file": output, "rows": n, "seed": seed}))
    elif output != "-":
        allowed = "".join(f" --allow-other-source {quote(name)}" for name in allow_other_source or ())
        options.note(
            f"{counted(n, 'row')} written to {output}. Add a column correct (0 or 1) to all of them, and then:\n"
            f"    qacal evaluate {quote(output)} --model {quote(model)}{allowed}"
        )


def _require_new_json(output: str) -> None:
    """Refuse an output that is no JSON, or may have labels."""
    from qacal.records.writers import is_stream

    if is_stream(output):
        return
    if not output.endswith(".json"):
        stem = Path(output).stem.strip(".")
        named = Path(output).with_name(f"{stem}.json") if stem else "to_label.json"
        raise typer.BadParameter(f"answers of a store are written as JSON for /v1/feedback; name it {named}.")
    options.require_folder(output)
    if Path(output).exists():
        raise typer.BadParameter(f"{output} exists, and may have labels. Name another file with -o, or remove it.")


def _present_version(model: str) -> str | None:
    """Return the version of the model in the folder; None if there is no model yet."""
    from qacal.storage import version_of

    with suppress(QacalError):
        return version_of(model)
    return None


def _write_drawn(drawn: list[dict[str, Any]], output: str, *, json: bool) -> None:
    """Write what to send to /v1/feedback when labels are filled in."""
    from qacal.records.writers import is_stream
    from qacal.service.learning import feedback_of

    if not drawn:
        options.note("All answers that were drawn have labels; nothing is written.")
    elif is_stream(output):
        print(options.json_text({"items": [feedback_of(row) for row in drawn]}))
        options.note(f"{counted(len(drawn), 'answer is', 'answers are')} drawn; to see them again: --again.")
    else:
        text = options.json_text({"items": [feedback_of(row) for row in drawn]})
        Path(output).write_text(f"{text}\n", encoding="utf-8")
        if not json:
            options.note(
                f"{counted(len(drawn), 'answer')} written to {output}. Replace null by 0 or 1 in all of them "
                "(correct), and send (if the service has this address):\n"
                f"    curl http://127.0.0.1:8321/v1/feedback -H 'content-type: application/json' -d @{quote(output)}"
            )
    if json:
        print(options.json_text({"file": output if drawn else None, "rows": len(drawn)}))
    if drawn and all(row["record"] is None for row in drawn):
        options.note(
            "The store has no texts of these answers (qacal serve --store-text); own_id is the id of their record."
        )
    if unknown := sum(row["record"] is None and row["own_id"] is None for row in drawn):
        have = counted(unknown, "of these answers has", "of these answers have")
        options.note(f"Note: {have} neither text nor own_id, so nobody can label them.")
