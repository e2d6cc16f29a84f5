"""The routes of the page: forms, the login, and headers that keep anything else out.

With an API key, a browser sends it once, in a form, and gets a cookie that no script can read and that no other site
can make it send. The cookie is a signature of its end, made with the key: it does not have the key, and opens only the
page. Forms from other origins are refused, also without a key, since any page can post to 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import math
import time
from functools import cache
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from jinja2 import Environment
from markupsafe import Markup
from sqlalchemy import make_url
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from qacal.errors import InputError, QacalError
from qacal.metrics.words import percent
from qacal.service.database import StoreError
from qacal.service.guard import RefusedError, is_key
from qacal.service.upstream import UpstreamError
from qacal.service.watch import of_other_versions

if TYPE_CHECKING:
    from qacal.service.app import Service
    from qacal.service.pages import content
    from qacal.service.proxy import Proxy
    from qacal.service.watch import Watches

COOKIE = "qacal"
_SECONDS = 12 * 3600
# The page does not wait longer for the watch.
_WATCH_SECONDS = 3.0
_FOLDER = Path(__file__).parent / "templates"
_NOT_HERE = "This form came from another site, or through a proxy that does not pass on the header Host."


def add_routes(app: FastAPI, service: Service, watches: Watches) -> None:
    """Add the page of a service."""
    settings = service.settings

    def is_let_in(request: Request) -> bool:
        if settings.api_key is None:
            return True
        bearer = request.headers.get("authorization", "").encode("latin-1")
        return is_key(bearer, settings.api_key) or _is_session(request.cookies.get(COOKIE, ""), settings.api_key)

    def login_page(status: int = 200, problem: str = "") -> Response:
        """Ask for the key, if there is one, and say what is wrong."""
        return _html("login.html", status, problem=problem, has_key=settings.api_key is not None)

    @app.get("/", include_in_schema=False)
    async def page(request: Request) -> Response:
        if not is_let_in(request):
            return login_page()
        query = {name: values[-1] for name, values in parse_qs(request.url.query).items()}
        if "routes" in query:
            return _routes(app, query["routes"])
        return await shown(request, query)

    @app.post("/", include_in_schema=False)
    async def posted(request: Request) -> Response:
        if not _is_same_origin(request):
            return login_page(403, _NOT_HERE)
        if not is_let_in(request):
            return login_page(401, "Send the key first; then send the form again.")
        form = await _form(request)
        if "correct" in form:
            return await shown(request, form, labelled=await _label(service, form))
        return await shown(request, form, is_asked=True)

    @app.post("/ask", include_in_schema=False)
    async def asked(request: Request) -> Response:
        if not _is_same_origin(request):
            return login_page(403, _NOT_HERE)
        if not is_let_in(request):
            return login_page(401, "Send the key first; then send the form again.")
        form = await _form(request)
        try:
            reply = await _replied(app.state.proxy, form)
        except (RefusedError, UpstreamError, QacalError) as error:
            return await shown(request, form, problem=f"The LLM did not answer: {error}")
        return await shown(request, {**form, **reply["form"]}, evidence=reply["evidence"], problem=reply["problem"])

    @app.post("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        if not _is_same_origin(request):
            return login_page(403, _NOT_HERE)
        given = (await _form(request)).get("key", "").strip()
        if settings.api_key is not None and not is_key(b"Bearer " + given.encode(), settings.api_key):
            return login_page(401, "This is not the key of this service.")
        reply = RedirectResponse("./", 303)
        if settings.api_key is not None:
            reply.set_cookie(
                COOKIE,
                _session(settings.api_key, int(time.time()) + _SECONDS),
                max_age=_SECONDS,
                httponly=True,
                samesite="strict",
                secure=request.url.scheme == "https",
            )
        return reply

    @app.post("/logout", include_in_schema=False)
    async def logout(request: Request) -> Response:
        reply = RedirectResponse("./", 303)
        if _is_same_origin(request):
            reply.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return reply

    async def shown(
        request: Request,
        form: dict[str, str],
        *,
        is_asked: bool = False,
        labelled: str = "",
        evidence: dict[str, Any] | None = None,
        problem: str = "",
    ) -> Response:
        """Return the page of the model that a form names, with the answer that it asks about."""
        if not service.models.served:
            store = make_url(settings.store).render_as_string(hide_password=True)
            ((name, path),) = settings.models.items()
            named = "" if Path(path).resolve().name == name else f" --name {quote(name)}"
            return _html(
                "collecting.html",
                name=name,
                model=quote(path),
                named=named,
                store=quote(store),
                url=quote(f"{request.base_url}v1/feedback"),
                has_key=settings.api_key is not None,
            )
        content = await asyncio.to_thread(_content)
        models = content.models_of(dict(service.models.served))
        one = models.get(form.get("model", ""), next(iter(models.values())))
        answer = evidence
        if evidence is not None:
            # The proxy may have chosen another model by the name of the LLM.
            chosen = [other for other in models.values() if other.served.name == evidence["model"]]
            one = next((other for other in chosen if other.value == form.get("llm")), chosen[0] if chosen else one)
        if is_asked:
            try:
                answer = await _answer(service, one, form)
            except InputError as error:
                problem = str(error)
        try:
            watch, watch_problem = None, ""
            if service.store is not None:
                watch = await asyncio.wait_for(watches.found(), _WATCH_SECONDS)
        except StoreError as error:
            watch_problem = str(error)
        except TimeoutError:
            watch_problem = "the database does not answer."
        rendered = await asyncio.to_thread(_rendered, one, [*models.values()], form, answer)
        return _html(
            "page.html",
            422 if problem else 200,
            **rendered,
            problem=problem,
            labelled=labelled,
            store=service.store,
            has_upstream=app.state.proxy is not None,
            has_key=settings.api_key is not None,
            watched=_watch_of(watch, one),
            watch_problem=watch_problem,
        )


def _routes(app: FastAPI, form: str) -> Response:
    """Return what /docs and /openapi.json return: these need the key, and a browser has only the cookie of the page."""
    from qacal.service.app import _page

    if form == "json":
        return JSONResponse(app.openapi(), headers=_headers())
    page = _page(app.openapi()).replace('href="openapi.json"', 'href="./?routes=json"')
    return HTMLResponse(page, headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"})


def _content() -> Any:
    """Return the module with what the page shows; it needs matplotlib, and a service without viewers does not."""
    from qacal.service.pages import content

    return content


async def _answer(service: Service, one: content.Shown, form: dict[str, str]) -> dict[str, Any]:
    """Calibrate the record of a form, and return its evidence."""
    from qacal.service.app import Batch

    texts = {name: form.get(name, "").strip() for name in ("question", "answer", "confidence")}
    texts |= {f"column {name}": form.get(f"column {name}", "").strip() for name in one.columns}
    if one.model.pipeline_.needs_text and not texts["question"]:
        raise InputError("The question is empty.")
    text = texts["confidence"].replace(",", ".")
    try:
        confidence = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError("The stated confidence is not a number; expected 0 to 1, such as 0.9, or 90%.") from None
    if not 0 <= confidence <= 1:
        may_be_percent = 1 < confidence <= 100 and not text.endswith("%")
        hint = f" For {confidence:g} percent, write {confidence:g}%." if may_be_percent else ""
        raise InputError(f"Confidence is {text:.40}; expected 0 to 1, such as 0.9 or 90%.{hint}")
    batch = Batch(items=[one.record(texts, confidence)], model=one.served.name, explain=True)
    (result,) = await service.calibrate(batch)
    if "error" in result:
        raise InputError(result["error"]["message"][:1].upper() + result["error"]["message"][1:])
    return result


async def _replied(proxy: Proxy | None, form: dict[str, str]) -> dict[str, Any]:
    """Ask the upstream the question of a form; return its answer, and the evidence, or why there is none."""
    question, llm = form.get("question", "").strip(), form.get("llm", "").strip()
    if proxy is None:
        raise InputError("this service has no upstream; start it with --upstream URL.")
    if not question:
        raise InputError("the question is empty.")
    request = {**({"model": llm} if llm else {}), "messages": [{"role": "user", "content": question}]}
    reply = json.loads(bytes((await proxy.completion(request, {}, abstains=False)).body))
    evidence, choices = reply.get("qa_calibration"), reply.get("choices") or [{}]
    text = (choices[0].get("message") or {}).get("content")
    found: dict[str, Any] = {"form": {"answer": text if isinstance(text, str) else ""}, "evidence": None, "problem": ""}
    if not evidence or evidence["calibrated"] is None:
        reason = (evidence or {}).get("reason") or "no confidence could be read"
        return {**found, "problem": f"The LLM answered, and there is no calibrated confidence: {reason}"}
    found["form"]["confidence"] = f"{evidence['confidence']:.4g}"
    return {**found, "evidence": evidence}


async def _label(service: Service, form: dict[str, str]) -> str:
    """Store the label of an answer that the page showed, and return what became of it."""
    from qacal.service.app import Labels

    try:
        label = {"id": form.get("id", ""), "correct": form["correct"] == "yes"}
        (result,) = await service.label(Labels(items=[label]))
    except QacalError as error:
        return f"The label was not stored: {error}"
    return "Thank you: the label is stored." if "error" not in result else result["error"]["message"]


def _rendered(
    one: content.Shown, models: list[content.Shown], form: dict[str, str], answer: dict[str, Any] | None
) -> dict[str, Any]:
    """Return what the template needs of a model; figures are drawn here, in a thread."""
    content = _content()
    rule, curve = one.model.decision_rule_, content.curve_of(one.model)
    try:
        asked = float(form["threshold"])
        if math.isnan(asked):
            raise ValueError
        threshold = round(min(max(asked, 0.0), 1.0), 2)
    except (KeyError, ValueError):
        threshold = 0.8 if rule is None or rule.threshold is None else round(rule.threshold, 2)
    return {
        "one": one,
        "models": models,
        "form": form,
        "answer": None if answer is None else content.answer_of(one, answer),
        "curve": curve,
        "curve_json": json.dumps(curve),
        "lines": _lines(curve),
        "threshold": threshold,
        "effect": content.at_threshold(curve, threshold) if curve else "",
        "rule": rule,
        "certificate": content.certificate(rule),
        "groups": content.groups_of(one.model),
    }


def _lines(curve: list[tuple[float, float | None]]) -> dict[str, str]:
    """Return coverage and accuracy by threshold as points of a drawing that is 100 wide and 50 high."""

    def points(column: int) -> str:
        pairs = ((at, row[column]) for at, row in enumerate(curve))
        return " ".join(f"{at},{50 - 50 * value:.1f}" for at, value in pairs if value is not None)

    return {"coverage": points(0), "accuracy": points(1)}


def _watch_of(found: dict[str, Any] | None, one: content.Shown) -> dict[str, Any] | None:
    """Return what the watch says of the model that is shown; None if it was not looked at since it was loaded."""
    for model in [] if found is None else found["models"]:
        if (model["name"], model["version"]) == (one.served.name, one.served.version):
            for part in model["parts"]:
                if part["value"] == one.value:
                    signals = [*part["signals"], *model["signals"]]
                    return {**model, **part, "signals": signals, "others": of_other_versions(model["other_versions"])}
    return None


# Forms and sessions


async def _form(request: Request) -> dict[str, str]:
    """Return the fields of a form; of a repeated field the last one."""
    text = (await request.body()).decode("utf-8", "replace")
    try:
        fields = parse_qs(text, keep_blank_values=True, max_num_fields=200)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}


def _is_same_origin(request: Request) -> bool:
    """Return whether a form came from this page: browsers say where a form is from, and other programs need no page."""
    origin = request.headers.get("origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("host", "")


def _session(key: str, until: int) -> str:
    """Return a cookie that is valid until some time; only who has the key can make it."""
    signed = hmac.new(key.encode(), f"page until {until}".encode(), sha256).hexdigest()
    return f"{until}.{signed}"


def _is_session(cookie: str, key: str) -> bool:
    until = cookie.partition(".")[0]
    is_number = until.isascii() and until.isdigit() and len(until) < 15
    return (
        is_number
        and int(until) > time.time()
        and hmac.compare_digest(cookie.encode(), _session(key, int(until)).encode())
    )


# The HTML


@cache
def _templates() -> Environment:
    from qacal.report.page import STYLE, templates

    environment = templates(_FOLDER)
    css, script = STYLE + _read("page.css"), _read("page.js")
    environment.globals.update(css=Markup(css), script=Markup(script))
    environment.filters["percent"] = percent
    return environment


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@cache
def _headers() -> dict[str, str]:
    """Return headers that allow the one style and the one script in the page, and nothing from elsewhere."""
    css, script = (f"'sha256-{_digest(str(_templates().globals[name]))}'" for name in ("css", "script"))
    policy = (
        "default-src 'none'",
        f"style-src {css}",
        "style-src-attr 'unsafe-inline'",  # the figures have styles in their elements
        f"script-src {script}",
        "img-src data:",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(policy),
        "X-Content-Type-Options": "nosniff",
        # Not "no-referrer": browsers would then no longer say from where a form is.
        "Referrer-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


def _digest(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()


def _html(template: str, status: int = 200, **values: Any) -> Response:
    page = _templates().get_template(template).render(**values)
    # A lone surrogate is possible in a Python string, but not in a page.
    return HTMLResponse(page.encode("utf-8", "replace"), status, headers=_headers())
