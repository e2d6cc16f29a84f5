"""Tables of cases in one test: for short cases, pytest's overhead takes longer than the case."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def each(names: str, rows: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Return a decorator that runs a test for every row of a table and reports all rows that fail.

    Like `pytest.mark.parametrize`, for tests without fixtures: several names, separated by commas, take tuples.
    """
    rows = list(rows)

    def of_all_rows(test: Callable[..., None]) -> Callable[[], None]:
        def test_all() -> None:
            failures = []
            for row in rows:
                try:
                    test(*row) if "," in names else test(row)
                except (Exception, pytest.fail.Exception) as failure:
                    failure.add_note(f"{names} = {row!r}")
                    failures.append(failure)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(rows)} rows", failures)

        test_all.__name__, test_all.__qualname__, test_all.__doc__ = test.__name__, test.__qualname__, test.__doc__
        test_all.__module__ = test.__module__
        return test_all

    return of_all_rows
