"""Questions to ask: a text, the choices where it has some, and what counts as right."""

from __future__ import annotations

from dataclasses import dataclass

from qacal.errors import InputError


@dataclass(frozen=True)
class Question:
    """A question.

    id : tells it from others; the rows of its answers carry it.
    text : what is asked.
    choices : the answers to choose from; None for an open question.
    ground_truth : the right answer and its other spellings, any of which is right; none if it is not known.

    >>> Question("q1", "Capital of France?", ground_truth=("Paris",)).choices is None
    True
    >>> Question("q2", "Capital of France?", choices=())
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: question q2 has an empty list of choices; leave it out (None) where there are none.
    """

    id: str
    text: str
    choices: tuple[str, ...] | None = None
    ground_truth: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not self.text.strip():
            raise InputError(f"question {self.id} is {self.text!r}; expected text.")
        if self.choices is not None and not self.choices:
            raise InputError(
                f"question {self.id} has an empty list of choices; leave it out (None) where there are none."
            )
        for name in ("choices", "ground_truth"):
            if isinstance(getattr(self, name), str):
                raise InputError(f"question {self.id}: {name} is one text; expected a tuple of texts.")
