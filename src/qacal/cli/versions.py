"""`qacal versions`: which versions of a model there are, and how to put one back."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from qacal.cli import options
from qacal.errors import counted


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
    json: options.Json = False,
) -> None:
    """List the versions of a model, and put an earlier one back.

    qacal refit keeps the version that it replaces, in the folder MODEL.versions. Putting a version back keeps the one
    that it replaces, too, so it can be undone: --put-back last puts back the version that was replaced last, by a refit
    or by a put-back. qacal threshold --save and qacal fit -o replace a version without keeping it. A running qacal
    serve loads the version without dropping a request. To forget a version, delete its folder.

    \b
        qacal versions model
        qacal versions model --put-back last
    """
    from qacal.model import versions

    if put_back is not None:
        name = versions.put_back(model, None if put_back == "last" else put_back)
        options.note(f"{model} is version {name} again.")
    found = [(one, datetime.fromtimestamp(one.since, UTC)) for one in versions.versions(model)]
    if json:
        rows = [
            {
                "version": one.name,
                "path": str(one.path),
                "is_present": one.is_present,
                "saved" if one.is_present else "kept_since": time.isoformat(timespec="seconds"),
            }
            for one, time in found
        ]
        print(options.json_text(rows))
        return
    rows_shown = [
        (
            one.name,
            "in use" if one.is_present else "kept",
            f"{'saved' if one.is_present else 'since'} {time:%Y-%m-%d %H:%M}",
        )
        for one, time in found
    ]
    title = f"{counted(len(found), 'version')} of {model}"
    options.show_table(title, ("version", "state", "time (UTC)"), rows_shown)
