"""`qacal local-llm`: a small LLM on this machine, to try things with."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import shared

app = typer.Typer(
    help="A small LLM on this machine, from packages, behind an OpenAI-compatible server: to try things with.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Model = Annotated[str, typer.Option("--model", metavar="NAME", help="smollm2 (135M, 100 MB) or qwen2.5-1.5b (1.1 GB).")]


@app.command()
def start(
    model: Model,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Where to listen; by default any free port.")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=64, help="How many requests it works on at a time.")] = 4,
) -> None:
    """Start a server for a model and print its base URL; it goes on until qacal local-llm stop.

    smollm2 keeps the form that is asked for only with examples and a grammar, which the prompt verb1s-guided has.

    \b
        make local-llm
        qacal local-llm start --model smollm2
    """
    from qacal import local_llm

    found = local_llm.model_named(model)
    server = local_llm.start(model, port, slots=slots)
    print(server.base_url)
    shared.note(
        f"Ask it: qacal elicit questions.parquet --base-url {server.base_url} --model {found.name} "
        f"--prompt {found.prompt} --workers {slots} -o run.db"
    )


@app.command()
def stop() -> None:
    """Stop the servers that qacal local-llm start has started."""
    from qacal import local_llm

    servers = local_llm.running()
    for server in servers:
        local_llm.stop(server)
        shared.note(f"{server.model} at {server.base_url} is stopped.")
    if not servers:
        shared.note("No local LLM is running.")


@app.command()
def status() -> None:
    """Print the servers that run, and where."""
    from qacal import local_llm

    servers = local_llm.running()
    for server in servers:
        print(f"{server.model}\t{server.base_url}\t{'ready' if server.is_ready else 'starting'}")
    if not servers:
        shared.note("No local LLM is running. Start one: qacal local-llm start --model smollm2")
