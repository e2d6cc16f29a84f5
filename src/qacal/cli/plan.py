"""`qacal plan`: points per bin for an error, the error for points per bin, and the bounds of a fit."""

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
    model: Annotated[
        str | None, typer.Option(metavar="MODEL", help="Print the certified bounds of this model.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Plan how many points per bin a guarantee needs.

    With probability 1 - alpha, every bin of every group has an error of at most epsilon. More points per bin guarantee
    a smaller error; fewer follow the confidence more closely.

    \b
        qacal plan                                     a table to choose from
        qacal plan --epsilon 0.1 --rows 5000           points per bin for an error
        qacal plan --points-per-bin 300 --rows 5000    the error of points per bin
        qacal plan --model model                       the certified bounds of a model
    """
    from qacal.planning import epsilon as epsilon_of
    from qacal.planning import points_per_bin as points_for

    if epsilon is not None and points_per_bin is not None:
        raise typer.BadParameter("pass --epsilon or --points-per-bin, not both; the other one is computed.")
    if model is not None:
        _print(_bounds(model), json)
        return
    b = points_per_bin
    if epsilon is not None and rows is not None:
        b = points_for(epsilon, rows, alpha, nu, levels=levels)
    if b is not None and rows is not None:
        reached = epsilon_of(b, rows, alpha, nu, levels=levels)
        _print({"points_per_bin": b, "epsilon": reached, "rows": rows, "alpha": alpha}, json)
    else:
        sizes = _ROWS if rows is None else (rows,)
        errors = _EPSILONS if epsilon is None else (epsilon,)
        _table(sizes, errors, b, alpha, nu, levels, json)


def _print(facts: dict[str, Any], json: bool) -> None:
    if json:
        print(options.json_text(facts))
        return
    for name, value in facts.items():
        number = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        options.show(f"{name.replace('_', ' '):<34}{number}")


def _table(
    sizes: tuple[int, ...], errors: tuple[float, ...], b: int | None, alpha: float, nu: float, levels: int, json: bool
) -> None:
    """Print points per bin by rows and epsilon, or for fixed points per bin, epsilon by rows."""
    from qacal.planning import epsilon as epsilon_of

    if b is not None:
        content: dict[str, Any] = {str(n): epsilon_of(b, n, alpha, nu, levels=levels) for n in sizes if n >= b}
        header: tuple[str, ...] = ("rows", "epsilon")
        rows: list[tuple[str, ...]] = [(f"{int(n):,}", f"{value:.4f}") for n, value in content.items()]
        title = f"epsilon of {b} points per bin, alpha {alpha:g}"
    else:
        content = {str(n): {str(error): _points(error, n, alpha, nu, levels) for error in errors} for n in sizes}
        header = ("rows", *(f"epsilon {error:g}" for error in errors))
        rows = [
            (f"{int(n):,}", *("too few rows" if value is None else f"{value:,}" for value in line.values()))
            for n, line in content.items()
        ]
        title = f"points per bin for an error of epsilon, alpha {alpha:g}"
    if json:
        print(options.json_text(content))
    else:
        options.show_table(title, header, rows)


def _points(error: float, n: int, alpha: float, nu: float, levels: int) -> int | None:
    from qacal.errors import NotEnoughRowsError
    from qacal.planning import points_per_bin

    try:
        return points_per_bin(error, n, alpha, nu, levels=levels)
    except NotEnoughRowsError:
        return None


def _bounds(path: str) -> dict[str, Any]:
    """Return the certified error bounds of a fit."""
    from qacal.calibrators.bin_maps import BinMaps
    from qacal.errors import InputError
    from qacal.model.saved import load_one

    maps = load_one(path).calibrator_.maps_
    if not isinstance(maps, BinMaps):
        raise InputError(
            f"{path} has no bins and no intervals; fit without --continuous, or with --calibrator tree-binning."
        )
    bound, read = maps.error_bounds(), maps.rows_read()
    return {
        "maps": len(maps.offset) - 1,
        "bins": len(bound),
        "alpha": float(maps.certificate.alpha),
        "largest_epsilon": float(bound[maps.rows > 0].max(initial=0.0)),
        "median_epsilon_of_a_row": maps.median_error_bound(),
        **{
            f"share_of_rows_within_{limit:g}": float(read[bound <= limit].sum() / read.sum())
            for limit in (0.05, 0.1, 0.2)
        },
    }
