"""Records from logs of other tools: evaluation harnesses, batches and production traces.

In: files of a format. Out: records, and an account of dropped rows. Open `base.py` first, then one format, such as
`deepeval.py`; `gathering.py` makes records of its rows.

>>> from qacal.sources.importers import import_log
>>> imported = import_log("lm-eval", ["run/samples_mmlu_law_2026-11-15T19-20-00.jsonl"])  # doctest: +SKIP
>>> imported.frame, imported.account.kept, imported.account.dropped  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from qacal.records.files import OnFault, refuse
from qacal.records.reading import MAX_BAD
from qacal.sources.importers.formats import FORMATS, Selection
from qacal.sources.importers.gathering import Account, Imported, gathered

__all__ = ["FORMATS", "Account", "Imported", "Selection", "gathered", "import_log"]


def import_log(
    format_name: str,
    paths: Sequence[str | Path],
    selection: Selection | None = None,
    *,
    keep_unscored: bool = False,
    on_fault: OnFault = refuse,
    max_bad: float = MAX_BAD,
) -> Imported:
    """Return the records of a log in memory, with the account of kept and dropped rows.

    format_name : one of :data:`FORMATS`.
    paths : files or folders; the format's module says which.
    selection : what to use in a log with several scores, filters or sources of confidence.
    keep_unscored : keep rows without a confidence; these can be judged, counted and asked again, but not calibrated.
    on_fault : called with each row that does not follow its format; by default the first is an error.
    max_bad : the largest share of such rows; if there are more, an error counts them by reason.
    """
    files, selection = [Path(path) for path in paths], selection or Selection()
    with gathered(format_name, files, selection, keep_unscored=keep_unscored, on_fault=on_fault, max_bad=max_bad) as (
        buffer,
        account,
    ):
        return Imported(buffer.frame(), account)
