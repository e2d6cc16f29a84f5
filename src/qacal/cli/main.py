"""The command `qacal`: registers the commands, and turns errors into messages and exit codes."""

from __future__ import annotations

import io
import signal
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from qacal.cli import (
    agree,
    answers,
    apply,
    check,
    documents,
    elicit,
    embed,
    evaluate,
    experiment,
    explain,
    export,
    fit,
    groups,
    import_,
    judge,
    label_next,
    options,
    plan,
    progress_line,
    questions,
    refit,
    report,
    serve,
    split,
    tally,
    threshold,
    versions,
    watch,
)
from qacal.errors import QacalError, QacalWarning
from qacal.records.text_files import MAX_ROW_MB, file_options

_HELP = """Turn the confidence that an LLM states into the probability that its answer is correct.

You need a file of answers: question, answer, confidence (0 to 1), and for fitting correct (0 or 1).

\b
No such file? Ask an LLM and have its answers judged:
    qacal elicit questions.parquet --base-url http://127.0.0.1:8080/v1 --model NAME -o run.db
    qacal judge run.db -o answers.parquet
Or import the log of an evaluation:
    qacal import lm-eval output/my-llm -o answers.parquet
Check the file, and what its labels are enough for:
    qacal check answers.parquet
Hold out three questions in ten:
    qacal split answers.parquet -o train.parquet --rest test.parquet
Train a model:
    qacal fit train.parquet -o model
Compare confidences before and after, on held-out rows:
    qacal evaluate test.parquet --model model
The same as a page with figures:
    qacal report model test.parquet -o report.html
Add calibrated confidences and their evidence to new answers:
    qacal apply model new.jsonl -o calibrated.jsonl
Explain one answer, and list the kinds of questions that the model found:
    qacal explain model --question "2 + 2?" --answer 5 --confidence 0.9
    qacal groups model
Choose when to answer, so that at least 80% of the answers are correct:
    qacal threshold model test.parquet --accuracy 0.8 --save
Estimate the share of correct rows in each document (rows with one id):
    qacal documents model test.parquet new.jsonl -o documents.csv
Label some new answers, and check whether the intervals still hold:
    qacal label-next model new.jsonl -n 100 -o to_label.jsonl
    qacal watch model labelled.jsonl
Serve a model over HTTP, and fit it again with labels of what it served:
    qacal serve model
    qacal refit model --store sqlite:///qacal-served.db -o new_model
Plan how many rows a guarantee needs:
    qacal plan --within 0.1 --groups 8

Every command has --help."""

# The class of usage errors is click's; typer does not export it, and some versions contain a copy of click.
_USAGE_ERROR: Any = typer.BadParameter.__base__

app = typer.Typer(help=_HELP, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
_SOURCES = (questions, elicit, answers, judge, import_, agree)
_COMMANDS = (
    check,
    split,
    fit,
    apply,
    explain,
    evaluate,
    report,
    threshold,
    documents,
    label_next,
    watch,
    groups,
    plan,
    experiment,
    embed,
    tally,
    export,
    serve,
    refit,
    versions,
)
for command in (*_SOURCES, *_COMMANDS):
    name = command.__name__.rpartition(".")[2].rstrip("_").replace("_", "-")
    app.command(name, no_args_is_help=name != "plan")(command.run)


@app.callback(invoke_without_command=True)
def _main(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    max_row_mb: float = typer.Option(
        MAX_ROW_MB,
        metavar="MB",
        min=0.001,
        help="Largest row of text, unpacked (in memory: up to 30 times as much). Goes before COMMAND.",
    ),
    max_unpacked_gb: float | None = typer.Option(
        None,
        metavar="GB",
        min=0.001,
        help="Largest unpacked gzip file; default: 100 times its size, or 256 MB. Goes before COMMAND.",
    ),
    encoding: str = typer.Option(
        "",
        metavar="NAME",
        help="Encoding of text files, if not UTF-8: cp1252, utf-16. Goes before COMMAND.",
    ),
    quiet: bool = typer.Option(
        False, "--quiet", help="Show no progress; without it, only a terminal shows some. Goes before COMMAND."
    ),
) -> None:
    progress_line.is_quiet = quiet
    settings = file_options(encoding=encoding or None, max_row_mb=max_row_mb, max_unpacked_gb=max_unpacked_gb)
    context.with_resource(settings)
    if version:
        from qacal import __version__

        print(__version__)
        raise typer.Exit


def main() -> None:
    """Run the command line.

    Exit codes: 0 done, 1 bad input (or a gate not passed), 2 wrong use, 3 an alarm of watch, 128 + n signal n.
    """
    # Help wraps between words only: names such as --human-labels stay whole.
    textwrap.TextWrapper.wordsep_re = textwrap.TextWrapper.wordsep_simple_re
    # A signal must not leave partial output behind: unwind, as Ctrl-C does.
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        _run()
    except (QacalError, QacalWarning) as error:  # warnings may be turned into errors
        _stop(str(error))
    except BrokenPipeError:
        # The reader closed the pipe, which is not an error.
        options.close_output()
        sys.exit(0)
    except OSError as error:
        _stop(f"{error.filename or 'the file system'}: {error.strerror or error}.")


def _run() -> None:
    try:
        with _warnings_as_notes():
            sys.exit(app(prog_name="qacal", standalone_mode=False))
    except _USAGE_ERROR as error:
        if (found := getattr(error.__cause__, "errors", None)) is not None:
            error.message = _value_problem(found()[0])
        text = io.StringIO()
        error.show(text)
        options.note(text.getvalue().rstrip("\n"))
        sys.exit(2)
    except typer.Abort:  # the end of a file where input was asked for
        options.note("Stopped.")
        sys.exit(1)
    except SystemExit as stop:
        # typer and rich turn a closed pipe into exit code 1.
        if isinstance(stop.__context__, BrokenPipeError):
            raise stop.__context__ from None
        sys.stdout.flush()
        if stop.code in (130, 143):  # Ctrl-C, SIGTERM
            options.note("Stopped.")
        raise


def _value_problem(found: dict[str, Any]) -> str:
    """Return what is wrong with the value of an option; pydantic, in newer versions of typer, does not name the value.

    >>> _value_problem({"input": "abc", "msg": "Input should be a valid integer, unable to parse string as an integer"})
    "it is 'abc'; expected a valid integer."
    >>> _value_problem({"input": "99999", "msg": "Input should be less than or equal to 65535"})
    "it is '99999'; expected at most 65535."
    """
    message: str = found["msg"].removeprefix("Value error, ")
    expected = message.removeprefix("Input should be ").partition(", unable to parse")[0]
    for words, short in (("less than or equal to", "at most"), ("greater than or equal to", "at least")):
        expected = expected.replace(words, short)
    return f"it is {found['input']!r}; expected {expected}." if message.startswith("Input should be ") else message


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Print the warnings of qacal as notes, without the place in the code; each text once, though two fits may warn."""
    usual, noted = warnings.showwarning, set[str]()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, QacalWarning):
            if str(message) not in noted:
                options.note(f"Note: {message}")
            noted.add(str(message))
        else:
            usual(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _stop(message: str) -> None:
    options.note(f"qacal: {message}")
    sys.exit(1)
