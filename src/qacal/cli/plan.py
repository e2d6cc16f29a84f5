"""`qacal plan`: labels for the intervals of the default model, and points per bin for an error."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from qacal.cli import options

_LABELS = (300, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
_ROWS = (500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000)
_EPSILONS = (0.05, 0.075, 0.1, 0.15, 0.2)


def run(
    within: Annotated[
        float | None, typer.Option(help="How wide intervals may be; by default, narrower with more rows.")
    ] = None,
    groups: Annotated[
        int | None, typer.Option(help="Number of groups; by default 2, 4, 8 or 16, as many as allow the width.")
    ] = None,
    accuracy: Annotated[
        float, typer.Option(help="Expected share of correct answers; intervals are widest for 0.5.")
    ] = 0.5,
    epsilon: Annotated[float | None, typer.Option(help="The error you can accept, such as 0.1.")] = None,
    points_per_bin: Annotated[int | None, typer.Option(help="Rows in a bin: prints the error they guarantee.")] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="Number of labelled rows; with --epsilon or --points-per-bin, of calibration rows (without those that "
            "make groups)."
        ),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Probability that at least one interval is wrong.")] = 0.1,
    nu: Annotated[
        float, typer.Option(help="Largest error of the labels in any group and bin, if they come from a judge.")
    ] = 0.0,
    levels: Annotated[
        int, typer.Option(help="Levels of groups: 1; 2 if small groups use all rows; depth + 1 for a tree.")
    ] = 1,
    json: options.Json = False,
) -> None:
    """Plan how many labelled rows a guarantee needs.

    The default model has intervals by probability, for bands of similar answers, and by group, all correct at once with
    probability 1 - alpha. More rows give narrower intervals, and more bands and groups. After a fit, qacal fit prints
    the widths that its rows gave.

    Calibrators that count points per bin (--calibrator qa-binning) guarantee an error of at most epsilon in every bin
    of every group. More points per bin guarantee a smaller error; fewer points make finer bins.

    \b
        qacal plan                                     both tables
        qacal plan --rows 5000                         what 5,000 labelled rows give
        qacal plan --within 0.1                        bands and groups of this width
        qacal plan --within 0.1 --groups 8             labelled rows for 8 groups
        qacal plan --epsilon 0.1 --rows 5000           points per bin for an error
        qacal plan --points-per-bin 300 --rows 5000    the error of points per bin
    """
    from qacal.errors import NotEnoughRowsError
    from qacal.planning import epsilon as epsilon_of
    from qacal.planning import points_per_bin as points_for

    if epsilon is not None and points_per_bin is not None:
        raise typer.BadParameter("pass --epsilon or --points-per-bin, not both; the other one is computed.")
    counts_points = epsilon is not None or points_per_bin is not None
    if counts_points and not (within is None and groups is None):
        raise typer.BadParameter(
            "--within and --groups plan the default model, --epsilon and --points-per-bin other calibrators; pass one "
            "kind of option."
        )
    if within is not None and not 0 < within < 1:
        raise typer.BadParameter(f"--within is {within:g}; expected a number between 0 and 1.")
    if rows is not None and rows < 1:
        raise typer.BadParameter(f"--rows is {rows}; expected 1 or more.")
    margins: dict[str, Any] | None = None
    if not counts_points:
        margins = _margins(rows, within, groups, accuracy, alpha, shows=not json)
        if not (rows is None and within is None and groups is None):
            if json:
                print(options.json_text(margins))
            return
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
        title = f"qa-binning: points per bin for an error of epsilon, alpha {alpha:g}"
        header = ["calibration rows", *(f"epsilon {error:g}" for error in errors)]
        lines = [
            (f"{int(n):,}", *("too few rows" if value is None else f"{value:,}" for value in line.values()))
            for n, line in content.items()
        ]
    if json:
        print(options.json_text(content if margins is None else {"default": margins, "points_per_bin": content}))
    else:
        options.show_table(title, header, lines)


def _margins(
    rows: int | None, within: float | None, groups: int | None, accuracy: float, alpha: float, *, shows: bool
) -> dict[str, Any]:
    """Return the bands and groups of the default model and their widths, by number of labelled rows; print them."""
    from qacal.model.defaults import CERTIFYING
    from qacal.planning import plan_margins, rounded_up, rows_for_margins

    labels = _LABELS if rows is None else (rows,)
    if rows is None and within is not None and groups is not None:
        needed = rows_for_margins(within, groups=groups, accuracy=accuracy, alpha=alpha)
        labels = (rounded_up(needed / CERTIFYING),)
    settings: dict[str, Any] = {"within": within, "groups": groups, "accuracy": accuracy, "alpha": alpha}
    plans = {n: plan_margins(max(1, round(CERTIFYING * n)), **settings) for n in labels}
    if shows:
        of = "" if within is None else f" within {within:g}"
        options.show_table(
            f"default model: intervals{of}, all correct with probability {1 - alpha:.4g}",
            ["labelled rows", "by probability", "bands", "by group", "groups"],
            [
                (
                    f"{n:,}",
                    f"±{plan.band_width:.3f}",
                    f"{plan.bands}",
                    "" if plan.group_width is None else f"±{plan.group_width:.3f}",
                    f"{plan.groups}",
                )
                for n, plan in plans.items()
            ],
        )
        options.show(
            f"by probability: how far off the answers of a band are on average, at most. by group: the accuracy of a "
            f"group. Expected for bands and groups of equal size with an accuracy of {accuracy:g}."
        )
        if within is not None and any(plan.band_width > within for plan in plans.values()):
            least = rounded_up(rows_for_margins(within, accuracy=accuracy, alpha=alpha) / CERTIFYING)
            options.show(f"One band within {within:g} takes about {least:,} labelled rows.")
    return {str(n): asdict(plan) for n, plan in plans.items()}
