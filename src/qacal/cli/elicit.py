"""`qacal elicit`: questions in, answers with confidences out, from any OpenAI-compatible server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qacal.cli import options, progress_line
from qacal.errors import some_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from qacal.sources.elicitation.asking import Progress
    from qacal.sources.elicitation.client import Client
    from qacal.sources.elicitation.run import CostEstimate, Outcomes

_SECONDS_BETWEEN_LINES = 30.0
_NOTHING_READ = (
    "No reply could be read. To see them: qacal answers {output} -o answers.jsonl --unread unread.jsonl. Very small "
    "LLMs need examples and a grammar (--prompt verb1s-guided, for llama.cpp); others may need a prompt of your own "
    "(.toml)."
)
_NO_LOGPROBS = (
    "The server does not support token probabilities, so rows have no confidence_tokens (--no-logprobs never asks for "
    "them). Its message: {message}"
)
# Options that help if requests are repeated.
_HELPS = {"TIMEOUT": "--timeout SECONDS, or fewer --workers", "BUSY": "--rpm, or fewer --workers"}

BaseUrl = Annotated[
    str, typer.Option("--base-url", metavar="URL", help="Address of the API: http://127.0.0.1:8080/v1.")
]
Workers = Annotated[
    int, typer.Option("--workers", metavar="NUMBER", min=1, max=1000, help="Number of parallel requests.")
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", min=1.0, help="Timeout of a request.")]
Tries = Annotated[
    int, typer.Option("--tries", metavar="NUMBER", min=1, help="Attempts before a request counts as failed.")
]
KeyEnv = Annotated[
    str | None,
    typer.Option(
        "--key-env",
        metavar="NAME",
        help="Environment variable with the server's key. Default: OPENAI_API_KEY, unless --header or --base-url has a "
        "key.",
    ),
]
Fields = Annotated[
    list[str] | None,
    typer.Option(
        "--field",
        metavar="NAME=JSON",
        help="A field of every request, such as seed=1; null removes a field: temperature=null. May be repeated.",
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header",
        metavar="NAME=VALUE",
        help="A header of every request, such as api-key=...; never stored. With a header named for a key "
        "(Authorization, x-api-key, X-Token), OPENAI_API_KEY is not sent. May be repeated.",
    ),
]
Rpm = Annotated[float | None, typer.Option("--rpm", metavar="NUMBER", min=0.01, help="Limit of requests per minute.")]
Preset = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="reasoning: for LLMs that think first and servers that refuse temperature, max_tokens or token "
        "probabilities; sends max_completion_tokens=8192 instead (--field changes it).",
    ),
]


def run(
    file: options.Rows,
    base_url: BaseUrl,
    model: Annotated[str, typer.Option("--model", metavar="NAME", help="The LLM's name on the server.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="RUN.db", help="SQLite file of the run. An existing run continues."),
    ],
    prompt: Annotated[
        str,
        typer.Option(
            "--prompt",
            metavar="NAME",
            help="verb1s-top1, verb1s-top2 to verb1s-top20, ling1s-top1, verb2s-top1, p-true, verb1s-guided (for LLMs "
            "that need examples and a grammar), or a file of your own that ends in .toml.",
        ),
    ] = "verb1s-top1",
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="NUMBER", min=1, help="Ask only the first NUMBER questions.")
    ] = None,
    samples: Annotated[
        int,
        typer.Option(
            "--samples",
            metavar="NUMBER",
            min=1,
            help="Ask each question NUMBER times; the majority answer gets the columns agreement, answers_entropy and "
            "samples. Needs --temperature.",
        ),
    ] = 1,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", metavar="NUMBER", min=0.0, help="Temperature of the LLM. Default: 0."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask nothing; print the first prompt and the cost of the run.")
    ] = False,
    no_logprobs: Annotated[
        bool, typer.Option("--no-logprobs", help="Do not ask for token probabilities, a second kind of confidence.")
    ] = False,
    workers: Workers = 8,
    timeout: Timeout = 120.0,
    tries: Tries = 6,
    rpm: Rpm = None,
    preset: Preset = None,
    field: Fields = None,
    key_env: KeyEnv = None,
    header: Headers = None,
    column: options.Columns = None,
) -> None:
    """Ask an LLM questions, and how confident it is in its answers.

    The file has the column question, and may have id, choices and ground_truth (a text, or a list of accepted answers);
    other columns pass through. Each raw reply is stored in RUN.db before the next request is made. The same command
    continues a run that was stopped or killed, and repeats no request that has a reply. If the server is busy (429,
    5xx), the run waits as long as the server asks.

    \b
        qacal elicit questions.parquet --base-url http://127.0.0.1:8080/v1 --model NAME -o run.db --dry-run
        qacal elicit questions.parquet --base-url http://127.0.0.1:8080/v1 --model NAME -o run.db
        qacal elicit questions.parquet --base-url URL --model NAME -o run.db --samples 5 --temperature 0.7
        qacal answers run.db -o answers.parquet
    """
    from qacal.sources.elicitation.question import COLUMNS
    from qacal.sources.elicitation.run import Plan, elicit

    options.require_apart(file, output)
    logprobs = not no_logprobs and preset is None
    names = options.mapping(column, only=COLUMNS)
    plan = Plan(model, prompt, logprobs, fields(field, preset), names, limit, samples, temperature)
    with options.opened(file) as rows:
        if dry_run:
            estimate = plan.estimate(rows)
            options.show(estimate.prompt)
            options.note(f"\n{_cost(estimate)} Nothing was asked.")
            return
        if samples > 1:
            options.note(_cost(plan.estimate(rows)))
        asked = client(base_url, key_env, header, timeout=timeout, tries=tries, rpm=rpm)
        note_unlisted(asked, model)
        with telling() as tell:
            ran = elicit(rows, asked, plan, output, workers=workers, progress=tell)
    done = ran.progress
    note_requests(done)
    if ran.no_logprobs is not None:
        options.note(_NO_LOGPROBS.format(message=ran.no_logprobs))
    options.note(summary(ran.outcomes))
    if ran.begun_at is not None and done.known:
        options.note(f"Earlier replies are from {ran.begun_at}; make sure that it is the same LLM.")
    if done.failed:
        options.note("Run the same command again to repeat the failed requests.")
        raise typer.Exit(1)
    if not ran.outcomes.stated:
        options.note(_NOTHING_READ.format(output=output))
        raise typer.Exit(1)
    which = f" --run {ran.run}" if ran.runs > 1 else ""
    options.note(f"Next: qacal {'judge' if ran.outcomes.truths else 'answers'} {output} -o answers.parquet{which}")


def _cost(estimate: CostEstimate) -> str:
    """Return the cost of a run in a sentence."""
    requests, tokens, each = f"{estimate.requests:,} requests", f"{estimate.tokens_sent:,}", ""
    if estimate.samples > 1:
        each = f" with {estimate.samples:,} samples each"
        requests += f" (if the server does not take n={estimate.samples}: {estimate.requests_at_most:,})"
        tokens += f" (or {estimate.tokens_sent_at_most:,})"
    return (
        f"{estimate.questions:,} questions{each}, {requests}: about {tokens} tokens to send (four characters a "
        f"token), at most {estimate.tokens_received_at_most:,} to receive."
    )


def note_unlisted(asked: Client, model: str) -> None:
    """Warn if the server does not list an LLM of this name: some servers accept any name."""
    listed = asked.listed_models()
    if listed is not None and model not in listed:
        options.note(
            f"The server lists {some_of(listed)}, but not {model}. Its replies are stored under the name {model}."
        )


def note_requests(done: Progress) -> None:
    """Print how many requests were made, repeated and failed, and the most frequent reasons for failures."""
    made = f"{done.traffic.requests:,} requests made{_repeated(done)}"
    options.note(f"{made}, {done.known:,} already had a reply, {done.failed:,} failed.")
    for why, count in done.failures.most_common(3):
        options.note(f"  {count:,} failed: {why}")


def _repeated(done: Progress) -> str:
    parts = []
    for trouble, count in done.traffic.again.most_common():
        helps = f"; {_HELPS[trouble.name]} helps" if trouble.name in _HELPS else ""
        parts.append(f"{count:,} repeated, {trouble}{helps}")
    return f" ({', '.join(parts)})" if parts else ""


def client(base_url: str, key_env: str | None, header: list[str] | None, **limits: Any) -> Client:
    """Return the client of the server."""
    from qacal.sources.elicitation.client import Client
    from qacal.sources.elicitation.masking import checked_url, credentials

    headers = {}
    for text in header or []:
        name, _, value = (part.strip() for part in text.partition("="))
        if not (name and value):
            # Do not print it: the secret may be in place of the name.
            raise typer.BadParameter("a --header is not of the form NAME=VALUE, such as api-key=...")
        headers[name] = value
    # If the user gives a key for this server, do not also send the one in the environment.
    has_own = key_env is None and bool(credentials(checked_url(base_url), headers))
    key = None if has_own else os.environ.get(key_env or "OPENAI_API_KEY") or None
    if key_env is not None and key is None:
        raise typer.BadParameter(f"--key-env {key_env}: there is no such environment variable, or it is empty.")
    return Client(base_url, key=key, headers=headers, **limits)


def fields(texts: list[str] | None, preset: str | None = None) -> dict[str, Any]:
    """Return ``--field`` options as a mapping, on top of a preset.

    >>> fields(["seed=1", "temperature=null", "user=me"])
    {'seed': 1, 'temperature': None, 'user': 'me'}
    """
    from qacal.sources.elicitation.run import PRESETS

    out: dict[str, Any] = {} if preset is None else dict(PRESETS[options.chosen("--preset", preset, [*PRESETS])])
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not of the form NAME=JSON, such as seed=1.")
        try:
            out[name] = json.loads(value)
        except ValueError:
            out[name] = value
    return out


def summary(outcomes: Outcomes) -> str:
    """Return the outcomes of a run in a few lines."""
    from qacal.sources.elicitation.reply import Reason

    guesses = outcomes.stated + sum(outcomes.lost.values())
    lines = [f"{outcomes.questions:,} questions: {outcomes.stated:,} of {guesses:,} guesses have a confidence."]
    for reason, count in outcomes.lost.most_common():
        reply = " ".join(outcomes.examples.get(reason, "").split())
        example = f", such as {reply[:79] + '…' if len(reply) > 80 else reply!r}" if reply else ""
        lines.append(f"  {count:,} {reason}{example}")
    if f"malformed: {Reason.UNKNOWN_EXPRESSION}" in outcomes.lost:
        lines.append("Give other words a number with qacal answers --expression WORDS=NUMBER, such as High=0.85.")
    if f"malformed: {Reason.THINKING}" in outcomes.lost:
        lines.append("LLMs that think first need more tokens: --preset reasoning, or --field max_tokens=8000.")
    if f"malformed: {Reason.CUT}" in outcomes.lost:
        lines.append("Replies that are cut off need more tokens: --field max_tokens=1000.")
    if len(outcomes.models) > 1:
        counted = ", ".join(f"{name} ({count:,})" for name, count in outcomes.models.most_common())
        lines.append(f"The replies come from several LLMs: {counted}. A confidence may mean something else for each.")
    return "\n".join(lines)


@contextmanager
def telling() -> Iterator[Callable[[int], Callable[[Progress], None]]]:
    """Yield a function that shows progress: one live line on a terminal, elsewhere a line every 30 seconds."""
    try:
        if sys.stderr.isatty() and not progress_line.is_quiet:
            yield lambda total: _teller(total, progress_line.show, 0.1)
        elif progress_line.is_quiet:
            yield lambda total: lambda progress: None
        else:
            yield lambda total: _teller(total, options.note, _SECONDS_BETWEEN_LINES)
    except (KeyboardInterrupt, SystemExit):  # main turns SIGTERM into SystemExit
        options.note("All replies so far are stored; run the same command again to continue.")
        raise
    finally:
        progress_line.clear()


def _teller(total: int, show: Callable[[str], None], pause: float) -> Callable[[Progress], None]:
    start = last = monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if monotonic() - last >= pause:
            last = monotonic()
            show(_line(progress, total, last - start))

    return tell


def _line(progress: Progress, total: int, seconds: float) -> str:
    """Return the progress of a run in a line; the rate counts only the requests of this run."""
    rate = progress.fresh / max(seconds, 1e-9)
    left = f", {progress_line.duration((total - progress.done) / rate)} left" if rate else ""
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    speed = f"{rate:.1f} a second" if rate >= 0.95 or not rate else f"{progress_line.duration(1 / rate)} each"
    return f"{progress.done:,} of {total:,}, {speed}{left}{failed}{_repeated(progress)}"
