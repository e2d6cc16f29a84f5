"""`qacal versions`: which versions of a model there are, and how to put another one in its place."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from qacal.cli import options
from qacal.errors import ArtifactError, InputError, counted


def run(
    model: options.Model,
    put_back: Annotated[
        str | None,
        typer.Option(
            "--put-back",
            metavar="VERSION",
            help="Put this version in the place of MODEL: its first digits, or last (the one that was replaced last).",
        ),
    ] = None,
    put: Annotated[
        str | None,
        typer.Option("--put", metavar="FOLDER", help="Put the model of another folder in the place of MODEL."),
    ] = None,
    drop_threshold: Annotated[
        bool,
        typer.Option("--drop-threshold", help="--put: also if MODEL has a threshold, and the other model has none."),
    ] = False,
    json: options.Json = False,
) -> None:
    """List the versions of a model, or put another one in its place.

    qacal refit keeps the version that it replaces, in the folder MODEL.versions, and so do --put-back and --put: all
    three can be undone. --put-back last puts back the version that was replaced last. --put takes a model that was
    fitted elsewhere (-o). qacal threshold --save and qacal fit -o replace a version without keeping it. A running qacal
    serve loads the version without dropping a request. A damaged model is renamed first, and is not among the
    versions. To forget a version, delete its folder.

    \b
        qacal versions model
        qacal versions model --put-back last
        qacal versions model --put new_model
    """
    from qacal.model import versions

    if put_back is not None and put is not None:
        raise typer.BadParameter("give either --put-back VERSION or --put FOLDER.")
    if put is not None:
        if not Path(model).exists():
            raise InputError(f"{model} does not exist, so there is nothing to replace.")
        has_threshold = [_contents(Path(path))["has_threshold"] for path in (model, put)]
        if has_threshold == [True, False] and not drop_threshold:
            raise InputError(
                f"{model} has a threshold and {put} has none: a service would answer what it now abstains from. Choose "
                "one for it, or pass --drop-threshold:\n"
                f"    qacal threshold {quote(put)} labelled.jsonl --accuracy 0.8 --save"
            )
        before = versions.put(model, put)
        options.note(f"{model} is now the model of {put}.")
        if before:
            options.note(f"To put the old version back:\n    qacal versions {quote(model)} --put-back {before}")
    if drop_threshold and put is None:
        raise typer.BadParameter("--drop-threshold goes with --put.")
    if put_back == "":
        raise typer.BadParameter("--put-back is empty; name a version, or last.")
    if put_back is not None:
        name = versions.put_back(model, None if put_back == "last" else put_back)
        options.note(f"{model} is version {name} again.")
    found = [(one, datetime.fromtimestamp(one.since, UTC), _contents(one.path)) for one in versions.versions(model)]
    if json:
        rows = [
            {
                "version": one.name or None,
                "path": str(one.path),
                "is_present": one.is_present,
                "in_use_since" if one.is_present else "kept_since": (
                    time.isoformat(timespec="seconds") if one.since else None
                ),
                **contents,
            }
            for one, time, contents in found
        ]
        print(options.json_text(rows))
        return
    rows_shown = []
    for one, time, contents in found:
        state = "in use" if one.is_present else "kept"
        when = f"since {time:%Y-%m-%d %H:%M}" if one.since else ""
        if contents["certifying_rows"] is None:
            rows_shown.append((one.name, "damaged, or not there", when, "", ""))
        else:
            certifying = f"{contents['certifying_rows']:,}"
            rows_shown.append((one.name, state, when, certifying, "yes" if contents["has_threshold"] else "no"))
    title = f"{counted(len(found), 'version')} of {model}"
    options.show_table(title, ("version", "state", "time (UTC)", "certifying rows", "threshold"), rows_shown)


def _contents(path: Path) -> dict[str, Any]:
    """Return what tells versions apart; None for a damaged one."""
    from qacal.model.saved import load

    try:
        models = load(path)._models.values()
    except ArtifactError:
        return {"certifying_rows": None, "has_threshold": None}
    return {
        "certifying_rows": sum(model.rows_ for model in models),
        "has_threshold": any(model.decision_rule_ is not None for model in models),
    }
