"""What a service tells about itself: numbers for Prometheus, and evaluations for OpenTelemetry."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import _logs, context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from qacal import __version__
from qacal.service.served import Models
from qacal.service.store import Store

_SECONDS = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_TWENTIETHS = tuple(step / 20 for step in range(1, 21))
_TRACE_CONTEXT = TraceContextTextMapPropagator()


class Telemetry:
    """The numbers of one service."""

    def __init__(self, models: Models, store: Store | None) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "qacal_requests", "Requests by route and status.", ("route", "status"), registry=self.registry
        )
        self.duration = Histogram(
            "qacal_request_duration_seconds", "Time of a request.", ("route",), buckets=_SECONDS, registry=self.registry
        )
        self.calibration = Histogram(
            "qacal_calibration_duration_seconds",
            "Time to calibrate a batch, waiting included.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.answers = Counter("qacal_answers", "Calibrated answers.", ("model", "outcome"), registry=self.registry)
        self.confidence = Histogram(
            "qacal_confidence", "Calibrated probabilities.", ("model",), buckets=_TWENTIETHS, registry=self.registry
        )
        self.abstentions = Counter(
            "qacal_abstentions", "Answers with decision abstain.", ("model",), registry=self.registry
        )
        self.far = Counter(
            "qacal_group_fallback",
            "Answers whose interval is not of their own band or group.",
            ("model", "source"),
            registry=self.registry,
        )
        self.unparsed = Counter(
            "qacal_unparsed_confidence",
            "Records whose confidence could not be read.",
            ("model",),
            registry=self.registry,
        )
        self.labels = Counter(
            "qacal_labels", "Labels by source and outcome.", ("source", "outcome"), registry=self.registry
        )
        self.registry.register(_State(models, store))
        # It sends nothing until somebody sets up the SDK of OpenTelemetry, which may be after this service started.
        self._events = _logs.get_logger("qacal", __version__)

    def served(self, model: str, evidence: dict[str, Any], response_id: Any = None) -> None:
        """Count a calibrated answer.

        response_id : the id of the completion that holds the answer, if it is known.
        """
        self.answers.labels(model, "calibrated").inc()
        self.confidence.labels(model).observe(evidence["calibrated"])
        if evidence["decision"] == "abstain":
            self.abstentions.labels(model).inc()
        if evidence["source"] not in ("band", "group"):
            self.far.labels(model, evidence["source"]).inc()
        self._events.emit(
            event_name="gen_ai.evaluation.result",
            timestamp=time.time_ns(),
            severity_number=_logs.SeverityNumber.INFO,
            attributes=_attributes(model, evidence, response_id),
        )

    def refused(self, model: str, record: dict[str, Any], problem: str) -> None:
        """Count a record that could not be calibrated."""
        self.answers.labels(model, "error").inc()
        if problem.startswith("confidence") or record.get("confidence") is None:
            self.unparsed.labels(model).inc()

    def text(self) -> bytes:
        """Return the numbers in the form of Prometheus."""
        return generate_latest(self.registry)


class _State(Collector):
    """Numbers that models and store keep themselves, read when somebody asks."""

    def __init__(self, models: Models, store: Store | None) -> None:
        self._models, self._store = models, store

    def collect(self) -> Iterator[Metric]:
        info = GaugeMetricFamily("qacal_model_info", "The served versions.", labels=("model", "version"))
        for served in self._models.served.values():
            info.add_metric((served.name, served.version), 1)
        yield info
        yield CounterMetricFamily("qacal_model_reloads", "New versions served.", self._models.reloads)
        failed = "New versions that could not be loaded."
        yield CounterMetricFamily("qacal_model_reload_failures", failed, self._models.failures)
        if self._store is None:
            return
        counts = self._store.counts
        yield CounterMetricFamily("qacal_store_written", "Answers stored.", counts.stored)
        yield CounterMetricFamily("qacal_store_lost", "Answers served but not stored.", counts.lost)
        yield CounterMetricFamily("qacal_store_failures", "Transactions that failed.", counts.failures)
        yield CounterMetricFamily("qacal_store_deleted", "Answers deleted for their age.", counts.deleted)
        yield GaugeMetricFamily("qacal_store_waiting", "Answers and labels not written yet.", self._store.waiting)


def _attributes(model: str, evidence: dict[str, Any], response_id: Any) -> dict[str, str | float]:
    """Return an answer as an evaluation in the words of OpenTelemetry.

    The interval has names of its own: those proposed for OpenTelemetry (`gen_ai.evaluation.score.ci.*`) are not
    decided, and mean an interval of the score of one answer, while this one is about a band of answers on average.
    """
    attributes = {
        "gen_ai.evaluation.name": "calibrated_confidence",
        "gen_ai.evaluation.score.value": evidence["calibrated"],
        "gen_ai.evaluation.score.label": evidence["decision"],
        "gen_ai.response.id": response_id if isinstance(response_id, str) else None,
        "qacal.id": evidence["id"],
        "qacal.model": model,
        "qacal.model_version": evidence["model_version"],
        "qacal.confidence": evidence["confidence"],
        "qacal.source": evidence["source"],
        "qacal.low": evidence["low"],
        "qacal.high": evidence["high"],
        "qacal.alpha": evidence["alpha"],
    }
    return {name: value for name, value in attributes.items() if value is not None}


@contextmanager
def parented(headers: dict[bytes, bytes]) -> Iterator[None]:
    """Make what is sent meanwhile part of the caller's trace, if its request names one and nothing else has done so."""
    if b"traceparent" not in headers or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    token = context.attach(_TRACE_CONTEXT.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)
