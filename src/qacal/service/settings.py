"""The settings of a service: limits, key and store."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from qacal.errors import InputError
from qacal.guarantee import check_alpha
from qacal.parameters import is_number, is_whole, shown
from qacal.records.provenance import allowed_sources
from qacal.sources.completions import ConfidenceFrom
from qacal.sources.elicitation.masking import checked_url

LOCAL = ("127.0.0.1", "localhost", "::1")
"""Names of this machine. A service without a key answers only requests that are addressed to one of them."""

NO_STORE = "none"


@dataclass(frozen=True)
class Settings:
    """The settings of a service.

    models : paths of saved models by name.
    host, port : where it listens.
    api_key : what callers must send as ``Authorization: Bearer KEY``; None for no key.
    insecure : accept callers from other machines without a key.
    store : the URL of the database, or "none".
    keep_text : also store the records, with question and answer.
    keep_days : delete what was served earlier; None keeps it.
    collects : the model need not exist yet; until it does, answers are stored with their texts for its first fit.
    embedder : as in :func:`qacal.load`.
    reload_seconds : how often to look for new versions of the models; 0 for only on SIGHUP.
    max_body : the largest request in bytes.
    max_items : the largest number of records, or labels, in a request.
    max_text : the longest text of a record in characters.
    max_requests : requests in work at once; more are refused.
    max_seconds : the longest time for a request; what the upstream needs comes on top.
    upstream : the base URL of the LLM server that requests are passed on to, such as ``https://api.example.org/v1``.
    upstream_key : its key. Without one, callers' own credentials are passed on if this service has no key itself.
    upstream_seconds : the longest time for an answer of the upstream.
    confidence_from : where the confidence of a completion comes from.
    allow_other_source : the columns of provenance that may differ from those of the fit, such as "model".
    log_requests : log method, route, status and time of each request.
    watch_alpha : the probability that any alarm of the watch of a version is ever wrong.
    """

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8321
    api_key: str | None = None
    insecure: bool = False
    store: str = "sqlite:///qacal-served.db"
    keep_text: bool = False
    keep_days: float | None = None
    collects: bool = False
    embedder: str | None = None
    reload_seconds: float = 2.0
    max_body: int = 8 * 2**20
    max_items: int = 1000
    max_text: int = 100_000
    max_requests: int = 256
    max_seconds: float = 30.0
    upstream: str | None = None
    upstream_key: str | None = None
    upstream_seconds: float = 600.0
    confidence_from: ConfidenceFrom = ConfidenceFrom.AUTO
    allow_other_source: tuple[str, ...] = ()
    log_requests: bool = False
    watch_alpha: float = 0.1

    def __post_init__(self) -> None:
        if not self.models:
            raise InputError("there is no model to serve; name at least one.")
        if self.collects and (len(self.models) > 1 or self.store == NO_STORE or not self.keep_text):
            raise InputError(
                "--collect needs exactly one MODEL, and a --store other than none, in which texts are kept."
            )
        if self.keep_text and self.store == NO_STORE:
            raise InputError(
                "--store-text keeps the texts in the store; choose a --store other than none, or leave it out."
            )
        if self.collects and self.upstream is not None and self.confidence_from is ConfidenceFrom.AUTO:
            raise InputError(
                "a first model needs confidences of one kind: choose one by --confidence-from. second-question works "
                "with every LLM, logprobs and p-true with servers that give log-probabilities."
            )
        for name in ("max_body", "max_items", "max_text", "max_requests"):
            if not is_whole(getattr(self, name), 1):
                raise InputError(f"{name} is {shown(getattr(self, name))}; expected a whole number, at least 1.")
        limits = (("max_seconds", 0.001), ("reload_seconds", 0.0), ("keep_days", 0.0), ("upstream_seconds", 0.001))
        for name, least in limits:
            value = getattr(self, name)
            if value is not None and not is_number(value, least, 1e9):
                raise InputError(f"{name} is {shown(value)}; expected a number, at least {least:g}.")
        check_alpha(self.watch_alpha)
        if self.api_key is not None and (len(self.api_key) < 16 or not self.api_key.isascii()):
            raise InputError("the API key is too short, or has special characters; use at least 16 of a-z and 0-9.")
        allowed_sources(self.allow_other_source, ())
        if self.upstream is not None:
            checked_url(self.upstream)
        if self.upstream_key is not None and not (self.upstream_key.isascii() and self.upstream_key.isprintable()):
            raise InputError("the key of the upstream has letters that cannot be sent; expected plain ASCII.")
        if self.api_key is None and not self.insecure and not _is_local(self.host):
            raise InputError(
                f"{self.host} can be reached from other machines. Set an API key in the environment variable "
                "QACAL_API_KEY (or another one: --api-key-env NAME), or pass --insecure if something else keeps "
                "strangers out."
            )


def _is_local(host: str) -> bool:
    """Return whether only this machine can reach a host.

    >>> _is_local("127.0.0.1"), _is_local("localhost"), _is_local("0.0.0.0"), _is_local("example.org")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
