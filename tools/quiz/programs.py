"""The output of small Python programs; the answer is what they printed when the questions were generated."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from hashlib import sha256

from tools.quiz.question import Draws, Item, drawn

_STRINGS = ("python", "calibrate", "question", "banana", "notebook", "hello", "window", "garden", "planet", "orchard")
# Comparing answers removes articles, so nothing would be left of these.
_ARTICLES = ("a", "an", "the")


def printed(program: str) -> str:
    r"""Return the output of a program, without the final line break.

    >>> printed("print(6 * 7)")
    '42'
    """
    out = io.StringIO()
    with redirect_stdout(out):
        exec(program, {})
    return out.getvalue().strip()


def _expression(draws: Draws) -> str:
    a, b, c = draws.number(2, 30), draws.number(2, 9), draws.number(2, 9)
    text = draws.pick(_STRINGS)
    return draws.pick(
        (
            f"{a} + {b} * {c}",
            f"({a} + {b}) * {c}",
            f"{a * c} // {b}",
            f"{a * c} % {b}",
            f"{b} ** {2 + c % 3}",
            f"len('{text}') * {c}",
            f"'{text}'[{b % 5}]",
            f"'{text}'[1:{2 + b % 4}]",
            f"'{text}'[::-1]",
            f"'{text}'[-{1 + b % 4}]",
            f"sum(range({b + 1}))",
            f"sum([{a}, {b}, {c}])",
            f"max({a}, {b} * {c}) - min({b}, {c})",
            f"len(range({b}, {a + 10}, {c}))",
            f"'{text[0]}' * {b}",
            f"int('{a}') + {b}",
            f"{a} > {b * 2} and {c} < {b}",
            f"not {a} == {b * c}",
            f"abs({b} - {a + 9})",
            f"len({{{a}, {b}, {c}, {a}}})",
            f"'{text}'.count('{text[b % len(text)]}')",
            f"'{text}'.find('{text[b % len(text)]}')",
            f"'{text}'.replace('{text[0]}', '{text[1]}')",
            f"{a} & {b}",
            f"{a} | {c}",
            f"{a} ^ {b}",
        )
    )


def _assignments(draws: Draws) -> str:
    a, b = draws.number(2, 20), draws.number(2, 9)
    change = draws.pick((f"x = x + {b}", f"x = x * {b}", f"x = x - {b}", f"x += {b}"))
    return f"x = {a}\n{change}\nprint(x)"


def _branch(draws: Draws) -> str:
    words = draws.pick((("large", "small"), ("yes", "no"), ("high", "low"), ("left", "right")))
    test = f"n {draws.pick('<>')} {draws.number(4, 16)}"
    return f"n = {draws.number(1, 20)}\nif {test}:\n    print('{words[0]}')\nelse:\n    print('{words[1]}')"


def _last_of_list(draws: Draws) -> str:
    values = [draws.number(1, 20) for _ in range(4)]
    return f"a = {values}\nprint({draws.pick(('a[0]', 'a[-1]', 'a[1]', 'len(a)', 'max(a)', 'min(a)'))})"


def _loop_sum(draws: Draws) -> str:
    return f"total = 0\nfor n in range({draws.number(2, 5)}, {draws.number(8, 14)}):\n    total += n\nprint(total)"


def _loop_squares(draws: Draws) -> str:
    body = f"    if n % {draws.number(2, 4)} == 0:\n        total += n * n"
    return f"total = 0\nfor n in range({draws.number(7, 15)}):\n{body}\nprint(total)"


def _while_halving(draws: Draws) -> str:
    body = f"    n = n // {draws.pick((2, 3))}\n    steps += 1"
    return f"n = {draws.number(20, 900)}\nsteps = 0\nwhile n > 1:\n{body}\nprint(steps)"


def _collatz(draws: Draws) -> str:
    body = "    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    steps += 1"
    return f"n = {draws.number(5, 26)}\nsteps = 0\nwhile n != 1:\n{body}\nprint(steps)"


def _nested(draws: Draws) -> str:
    inner = f"    for b in range(a, {draws.number(5, 8)}):\n        count += 1"
    return f"count = 0\nfor a in range({draws.number(3, 6)}):\n{inner}\nprint(count)"


def _recursion(draws: Draws) -> str:
    head = f"def f(n):\n    if n < {draws.pick((1, 2))}:\n        return {draws.number(1, 4)}\n"
    return f"{head}    return f(n - 1) + {draws.pick(('n', '2 * n', 'f(n - 2)'))}\n\nprint(f({draws.number(4, 7)}))"


def _list_changes(draws: Draws) -> str:
    values = [draws.number(1, 20) for _ in range(5)]
    change = draws.pick(("a.pop()", "a.pop(0)", "a.append(a[0])", "a.remove(a[2])", "a = a[1:4]", "a = a[::2]"))
    return f"a = {values}\n{change}\nprint(sum(a))"


def _dictionary(draws: Draws) -> str:
    text = draws.pick(("mississippi", "banana", "committee", "bookkeeper", "abracadabra", "tennessee", "parallel"))
    asked = draws.pick(("len(counts)", "max(counts.values())", f"counts['{text[draws.number(0, 5)]}']"))
    return f"counts = {{}}\nfor c in '{text}':\n    counts[c] = counts.get(c, 0) + 1\nprint({asked})"


def _joined(draws: Draws) -> str:
    text = draws.pick(_STRINGS)
    test = draws.pick(("i % 2 == 0", "c not in 'aeiou'", "c in 'aeiou'", "i % 3 != 0"))
    return f"out = ''\nfor i, c in enumerate('{text}'):\n    if {test}:\n        out += c\nprint(out)"


_PROGRAMS: tuple[Callable[[Draws], str], ...] = (
    *(_loop_sum, _loop_squares, _while_halving, _collatz, _nested),
    *(_recursion, _list_changes, _dictionary, _joined),
    # A small LLM can follow these three kinds, so they come twice as often.
    *(_assignments, _branch, _last_of_list) * 2,
)


def _asked_expression(draws: Draws) -> Item | None:
    expression = _expression(draws)
    return _item(f"What does this Python statement print? print({expression})", f"print({expression})")


def _asked_program(draws: Draws) -> Item | None:
    program = draws.pick(_PROGRAMS)(draws)
    return _item(f"What does this Python program print?\n\n{program}", program)


def _item(question: str, program: str) -> Item | None:
    output = printed(program)
    if output in _ARTICLES:
        return None
    forms = (output,) if output.isdigit() else (output, f"'{output}'", f'"{output}"')
    return Item(sha256(program.encode()).hexdigest()[:12], question, forms)


TOPICS = (
    drawn("python-expressions", 150, _asked_expression),
    drawn("python-programs", 150, _asked_program),
)
