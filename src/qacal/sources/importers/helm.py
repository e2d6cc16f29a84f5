"""HELM: folders of runs; requests and replies in ``scenario_state.json``, scores in ``per_instance_stats.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from qacal.errors import InputError
from qacal.records.files import OnFault
from qacal.sources.importers.base import Dropped, Outcome, Selection, Unscored, UnusableRowError
from qacal.sources.importers.confidences import MAX_PROB, STATED, ParsedReply, is_cut_reason, parse_confidence
from qacal.sources.importers.items import Item, document, items_of, read_each
from qacal.sources.importers.rows import graded, log_row
from qacal.sources.importers.texts import Question
from qacal.sources.importers.values import inside, listed, members, text_of

_METRICS = ("exact_match", "quasi_exact_match")
_Key: TypeAlias = tuple[str | None, str | None, str]


def read(paths: Sequence[Path], selection: Selection, on_fault: OnFault) -> Iterator[Outcome]:
    """Yield the instances of runs."""
    for path in paths:
        states = sorted(path.rglob("scenario_state.json")) if path.is_dir() else []
        if not states:
            raise InputError(
                f"{path} holds no scenario_state.json; expected the folder of a HELM run, or one above it."
            )
        for state in states:
            run = _Run.of(state.parent, selection, on_fault)
            yield from read_each(items_of(state, on_fault, "request_states"), run.outcome, on_fault)


@dataclass(frozen=True)
class _Run:
    """A run, with the statistics that are used."""

    task: str
    arguments: Any
    selection: Selection
    stats: dict[_Key, dict[str, float]] = field(repr=False)

    @cached_property
    def has_logprobs(self) -> bool:
        """False if the model gave none; HELM then writes a log-probability of 0 and a max_prob of 1."""
        return any(means.get("logprob", 0.0) < 0 for means in self.stats.values())

    @staticmethod
    def of(folder: Path, selection: Selection, on_fault: OnFault) -> _Run:
        spec = folder / "run_spec.json"
        content = document(spec) if spec.is_file() else {}
        wanted = {MAX_PROB, "logprob", *((selection.metric,) if selection.metric else _METRICS)}
        stats = {
            _key(item.value.get("instance_id"), item.value, item.value.get("perturbation")): _means(item.value, wanted)
            for item in items_of(folder / "per_instance_stats.json", on_fault)
        }
        task = _task(text_of(inside(content, "name")) or folder.name)
        return _Run(task, inside(content, "scenario_spec", "args"), selection, stats)

    def outcome(self, item: Item) -> Outcome:
        state = item.value
        instance = members(state.get("instance"))
        question = text_of(inside(instance, "input", "text"))
        if question is None or text_of(inside(instance, "id")) is None:
            raise UnusableRowError("there is no instance with an id and an input; expected a request state of HELM.")
        if state.get("reference_index") is not None:
            return Dropped("each reference was scored apart, and the log does not say which was best")
        output = text_of(inside(state, "result", "completions", 0, "text"))
        if output is None or inside(state, "result", "success") is False:
            return Dropped("the request failed")
        means = self.stats.get(_key(inside(instance, "id"), state, inside(instance, "perturbation")), {})
        metric = self.selection.metric or next((name for name in _METRICS if name in means), None)
        if self.selection.metric is not None and metric not in means:
            return Dropped(f"it has no metric {metric}")
        reply = ParsedReply.of(output, is_cut=_is_cut(state))
        max_prob = (
            parse_confidence(means.get(MAX_PROB), source=MAX_PROB, can_be_percent=False)
            if self.has_logprobs
            else Unscored("the model gave no log-probabilities (all of them are 0 in HELM's statistics)")
        )
        id_ = f"{self.task}:{instance['id']}"
        model = text_of(inside(state, "request", "model"))
        perturbation = text_of(inside(instance, "perturbation", "name"))
        right = [part for part in listed(instance.get("references")) if "correct" in listed(inside(part, "tags"))]
        truths = (text_of(inside(part, "output", "text")) for part in right)
        return log_row(
            self.selection,
            Question(question),
            text_of(inside(state, "output_mapping", output.strip())) or reply.answer,
            graded(means.get(metric or ""), self.selection.correct_at, f"the metric {metric}"),
            {MAX_PROB: max_prob, STATED: reply.stated},
            identity=id_,
            model=model,
            key=(self.selection.model or model, *_key(id_, state, instance.get("perturbation"))),
            ground_truth=tuple(text for text in truths if text),
            prompt=text_of(inside(state, "request", "prompt")),
            task=self.task,
            objects=[
                ("instance", {"split": instance.get("split"), "perturbation": perturbation}),
                ("scenario", self.arguments),
            ],
        )


def _task(run: str) -> str:
    """Return the name of a run without the model.

    >>> _task("mmlu:subject=law,model=openai_gpt2"), _task("simple_mcqa:model=simple_model1")
    ('mmlu:subject=law', 'simple_mcqa')
    """
    name, _, arguments = run.partition(":")
    kept = [part for part in arguments.split(",") if part and not part.startswith(("model=", "model_deployment="))]
    return f"{name}:{','.join(kept)}" if kept else name


def _key(id_: Any, row: dict[str, Any], perturbation: Any) -> _Key:
    return text_of(id_), text_of(row.get("train_trial_index")), json.dumps(perturbation, sort_keys=True)


def _is_cut(state: dict[str, Any]) -> bool:
    """Return whether a reply was cut off; without a finish reason, which most clients omit, by its number of tokens."""
    reply, most = inside(state, "result", "completions", 0), inside(state, "request", "max_tokens")
    is_full = isinstance(most, int) and len(listed(inside(reply, "tokens"))) >= most > 0
    return is_cut_reason(inside(reply, "finish_reason")) or (is_full and inside(reply, "finish_reason") is None)


def _means(row: dict[str, Any], wanted: set[str]) -> dict[str, float]:
    means: dict[str, float] = {}
    for stat in listed(row.get("stats")):
        name, mean = text_of(inside(stat, "name", "name")), inside(stat, "mean")
        if name in wanted and isinstance(mean, float | int):
            means.setdefault(str(name), mean)
    return means
