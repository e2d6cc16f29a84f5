"""`qacal serve`: saved models as a service over HTTP."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from contextlib import ExitStack
from errno import EADDRINUSE
from pathlib import Path
from socket import (
    AF_INET6,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
    getaddrinfo,
    socket,
)
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from qacal.cli import options
from qacal.errors import InputError

if TYPE_CHECKING:
    from qacal.service.settings import Settings

_KEY, _UPSTREAM_KEY = "QACAL_API_KEY", "QACAL_UPSTREAM_KEY"
# Requests in work have so long to finish when the service is stopped.
_STOP_SECONDS = 20
_SWITCH_SECONDS = 0.001


def run(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Models from qacal fit. Each has the name of its folder, or NAME=MODEL."),
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8321,
    store: Annotated[
        str,
        typer.Option(
            metavar="URL", help="What was served, and labels: sqlite:///FILE, postgresql+psycopg://..., or none."
        ),
    ] = "sqlite:///qacal-served.db",
    store_text: Annotated[
        bool, typer.Option("--store-text", help="Also store the records, with question and answer.")
    ] = False,
    collect: Annotated[
        bool,
        typer.Option(
            "--collect",
            help="MODEL need not exist yet: store answers, with --store-text, for its first fit (qacal fit --store).",
        ),
    ] = False,
    keep_days: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            min=0.0,
            help="Delete what was served earlier, but not the labels that the watch needs. Default: keep it.",
        ),
    ] = None,
    api_key_env: Annotated[
        str, typer.Option(metavar="NAME", help="The environment variable with the API key, if there is one.")
    ] = _KEY,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen on an address that others reach, without an API key.")
    ] = False,
    reload_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="How often to look for new versions; 0: on SIGHUP only.")
    ] = 2.0,
    max_items: Annotated[int, typer.Option(min=1, help="The most records or labels in a request.")] = 1000,
    max_body_mb: Annotated[float, typer.Option(metavar="MB", min=0.001, help="The largest request.")] = 8.0,
    max_text: Annotated[int, typer.Option(metavar="CHARACTERS", min=1, help="The longest text of a record.")] = 100_000,
    max_requests: Annotated[int, typer.Option(min=1, help="The most requests in work at once.")] = 256,
    max_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="The longest time for a request.")
    ] = 30.0,
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log method, route, status and time of each request.")
    ] = False,
    embedder: options.Embedder = None,
    upstream: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help=f"The base URL of the LLM server behind the proxy, such as http://127.0.0.1:8080/v1. Its key is read "
            f"from {_UPSTREAM_KEY}.",
        ),
    ] = None,
    upstream_seconds: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.001, help="The longest time for an answer of the upstream.")
    ] = 600.0,
    confidence_from: Annotated[
        Literal["auto", "logprobs", "second-question", "one-call", "p-true"],
        typer.Option(
            help="Where the confidence of a completion comes from: its tokens, a second question about the answer, a "
            "prompt for answer and confidence in place of the question, or the probability of True as the answer to a "
            "second question. auto: what the model was fitted on; if that is not known, tokens, else a second question."
        ),
    ] = "auto",
    allow_other_source: options.AllowOtherSource = None,
    watch_alpha: Annotated[
        float, typer.Option(help="Probability that any alarm of /v1/watch is ever wrong, for a version of a model.")
    ] = 0.1,
) -> None:
    """Serve models over HTTP.

    Records come in and calibrated confidences with their evidence go out; labels of served answers may arrive later.

    \b
    Routes (docs/service.md has their fields; /docs and /openapi.json describe them):
        POST /v1/calibrate   records in, evidence out
        POST /v1/chat/completions, GET /v1/models: of the LLM server at --upstream, with calibrated confidences
        POST /v1/decisions   typed questions to that server, with calibrated probabilities
        POST /beta/litellm_basic_guardrail_api   a guardrail for LiteLLM
        POST /v1/feedback    labels of served answers, by their ids
        DELETE /v1/answers/ID
        GET /v1/watch        whether the intervals still hold, by labels of audits
        GET /v1/model, /v1/groups, /healthz, /readyz, /metrics
        GET /                a page for people

    A model is replaced while the service runs when its folder changes (qacal fit -o, qacal threshold --save), or on
    SIGHUP; no request is dropped. Only this machine can reach the service, unless you choose another --host; then set
    an API key, and callers send it as "Authorization: Bearer KEY". Logs have no text of requests.

    \b
        qacal serve model
        qacal serve model --upstream http://127.0.0.1:8080/v1
        qacal serve model --upstream http://127.0.0.1:8080/v1 --collect --confidence-from second-question
        qacal serve gpt=models/gpt qwen=models/qwen --store postgresql+psycopg://qacal@db/qacal
        QACAL_API_KEY=$(cat key) qacal serve model --host 0.0.0.0
    """
    with options.usage_errors():
        paths = _named(models)
    from qacal.service.settings import Settings
    from qacal.sources.completions import ConfidenceFrom

    missing = next((path for path in paths.values() if not Path(path).exists()), None)
    with options.usage_errors():
        if missing is not None and upstream is not None and not collect:
            raise InputError(
                f"{missing} does not exist. To start without a model, and collect answers for its first fit, pass "
                "--collect and --confidence-from."
            )
        settings = Settings(
            models=paths,
            host=host,
            port=port,
            api_key=os.environ.get(api_key_env) or None,
            insecure=insecure,
            store=store,
            keep_text=store_text or collect,
            collects=collect,
            keep_days=keep_days,
            embedder=embedder,
            log_requests=log_requests,
            reload_seconds=reload_seconds,
            max_body=int(max_body_mb * 2**20),
            max_items=max_items,
            max_text=max_text,
            max_requests=max_requests,
            max_seconds=max_seconds,
            upstream=upstream,
            upstream_key=os.environ.get(_UPSTREAM_KEY) or None,
            upstream_seconds=upstream_seconds,
            confidence_from=ConfidenceFrom(confidence_from),
            allow_other_source=tuple(allow_other_source or ()),
            watch_alpha=watch_alpha,
        )
    try:
        sockets = _bound(host, port)
    except InputError as error:
        options.note(f"Error: {error}")
        raise typer.Exit(2) from None
    with ExitStack() as stack:
        for one in sockets:
            stack.enter_context(one)
        _serve(settings, sockets)


def _bound(host: str, port: int) -> list[socket]:
    """Return sockets with the addresses of a host; before a model is loaded, which may take a while."""
    found, problem = [], None
    try:
        addresses = getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE)
    except OSError as error:
        raise InputError(f"--host is {host}, which is no address of this machine: {error.strerror}.") from None
    for family, kind, protocol, _, address in dict.fromkeys(addresses):
        bound = socket(family, kind, protocol)
        try:
            if os.name == "posix":  # elsewhere it would let two servers have one port
                bound.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
            if family == AF_INET6:
                bound.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
            bound.bind(address)
            found.append(bound)
        except OSError as error:
            bound.close()
            problem = error
            if error.errno == EADDRINUSE:
                break
    if problem is not None and (problem.errno == EADDRINUSE or not found):
        for bound in found:
            bound.close()
        if problem.errno == EADDRINUSE:
            raise InputError(f"port {port} is in use; stop the program that listens there, or choose another --port.")
        raise InputError(
            f"{host}, port {port}, cannot be listened on: {problem.strerror}. Choose another --host or --port."
        )
    return found


def _named(models: list[str]) -> dict[str, str]:
    """Return the paths of models by name.

    >>> _named(["models/gpt", "qwen=models/2"])
    {'gpt': 'models/gpt', 'qwen': 'models/2'}
    """
    paths: dict[str, str] = {}
    for text in models:
        name, equals, path = text.partition("=")
        if not equals or Path(text).exists():
            name, path = Path(text).resolve().name, text
        if not name or name in paths:
            raise InputError(f"two models have the name {name!r}; name them: NAME={path}.")
        paths[name] = path
    return paths


def _serve(settings: Settings, sockets: list[socket]) -> None:
    import uvicorn
    from sqlalchemy import make_url

    from qacal.service.app import create_app
    from qacal.sources.completions import Planner

    app = create_app(settings)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    for name in ("httpx2", "httpcore", "httpcore2"):  # they log the URL of the upstream, which may have credentials
        logging.getLogger(name).setLevel(logging.WARNING)
    service = app.state.service
    if (hangup := getattr(signal, "SIGHUP", None)) is not None:
        signal.signal(hangup, lambda number, frame: service.watcher.look())
    for served in service.models.served.values():
        options.note(f"{served.name}: {served.path}, version {served.version[:12]}")
        if service.upstream is not None:
            any_prompt = "prompt" in settings.allow_other_source
            for warning in Planner(settings.confidence_from, served.model, any_prompt=any_prompt).warnings:
                options.note(f"Warning: {served.name}: {warning}; see --confidence-from and --allow-other-source.")
    if not service.models.served:
        options.note(
            f"{''.join(settings.models.values())}: not there yet. Answers are stored for its first fit, with texts."
        )
    address = f"[{settings.host}]" if ":" in settings.host else settings.host
    store = "none" if service.store is None else make_url(settings.store).render_as_string(hide_password=True)
    behind = "" if service.upstream is None else f"\nupstream: {service.upstream.shown}"
    texts = ", with questions and answers" if settings.keep_text else ""
    options.note(f"http://{address}:{settings.port}\nstore: {store}{texts}{behind}")
    # Its log of requests has paths, which callers choose; the guard of the service logs routes, with --log-requests.
    config = uvicorn.Config(
        app,
        access_log=False,
        log_level="warning",
        timeout_keep_alive=75,
        timeout_graceful_shutdown=_STOP_SECONDS,
        server_header=False,
        ws="none",
    )
    # For the slowest answers: threads that write or load hand over the interpreter sooner, and what was loaded is not
    # searched for garbage again and again.
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    try:
        uvicorn.Server(config).run(sockets=sockets)
    finally:  # a second Ctrl-C ends uvicorn without telling the application
        service.close()
