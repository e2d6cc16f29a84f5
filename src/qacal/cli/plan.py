"""`qacal plan`: points per bin for an error, and the error for points per bin."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from qacal.cli import options

_ROWS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
_EPSILONS = (0.05, 0.075, 0.1, 0.15, 0.2)


def run(
    epsilon: Annotated[float | None, typer.Option(help="The error you can accept, such as 0.1.")] = None,
    points_per_bin: Annotated[int | None, typer.Option(help="Rows in a bin: prints the error they guarantee.")] = None,
    rows: Annotated[
        int | None, typer.Option(help="Number of calibration rows (without those that make groups).")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Probability that any bin exceeds the error.")] = 0.1,
    nu: Annotated[
        float, typer.Option(help="Largest error of the labels in any group and bin, if they come from a judge.")
    ] = 0.0,
    levels: Annotated[
        int, typer.Option(help="Levels of groups: 1; 2 if small groups use all rows; depth + 1 for a tree.")
    ] = 1,
    json: options.Json = False,
) -> None:
    """Plan how many points per bin a guarantee needs.

    With probability 1 - alpha, every bin of every group has an error of at most epsilon. More points per bin guarantee
    a smaller error; fewer points make finer bins.

    \b
        qacal plan                                     a table to choose from
        qacal plan --epsilon 0.1 --rows 5000           points per bin for an error
        qacal plan --points-per-bin 300 --rows 5000    the error of points per bin
    """
    from qacal.errors import NotEnoughRowsError
    from qacal.planning import epsilon as epsilon_of
    from qacal.planning import points_per_bin as points_for

    if epsilon is not None and points_per_bin is not None:
        raise typer.BadParameter("pass --epsilon or --points-per-bin, not both; the other one is computed.")
    b = points_per_bin
    if epsilon is not None and rows is not None:
        b = points_for(epsilon, rows, alpha, nu, levels=levels)
    if b is not None and rows is not None:
        reached = epsilon_of(b, rows, alpha, nu, levels=levels)
        if json:
            print(options.json_text({"points_per_bin": b, "epsilon": reached, "rows": rows, "alpha": alpha}))
        else:
            options.show(f"{b:,} points per bin guarantee an epsilon of {reached:.4g} with {rows:,} rows.")
        return

    def points(error: float, n: int) -> int | None:
        try:
            return points_for(error, n, alpha, nu, levels=levels)
        except NotEnoughRowsError:
            return None

    sizes = _ROWS if rows is None else (rows,)
    if b is not None:
        content: dict[str, Any] = {str(n): epsilon_of(b, n, alpha, nu, levels=levels) for n in sizes if n >= b}
        title, header = f"epsilon of {b} points per bin, alpha {alpha:g}", ["rows", "epsilon"]
        lines: list[tuple[str, ...]] = [(f"{int(n):,}", f"{value:.4f}") for n, value in content.items()]
    else:
        errors = _EPSILONS if epsilon is None else (epsilon,)
        content = {str(n): {str(error): points(error, n) for error in errors} for n in sizes}
        title = f"points per bin for an error of epsilon, alpha {alpha:g}"
        header = ["rows", *(f"epsilon {error:g}" for error in errors)]
        lines = [
            (f"{int(n):,}", *("too few rows" if value is None else f"{value:,}" for value in line.values()))
            for n, line in content.items()
        ]
    if json:
        print(options.json_text(content))
    else:
        options.show_table(title, header, lines)
