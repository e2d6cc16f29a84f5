"""`qacal plan`: what labelled rows give with the default model."""

import json
import re

import pytest

from qacal.model.defaults import CERTIFYING
from qacal.planning import plan_margins
from tests.cli.test_cli import ok, run


def test_both_tables():
    out = ok("plan")
    first, second = out.split("qa-binning: ")
    lines = [line.split() for line in first.splitlines() if re.match(r" +[\d,]+ ", line)]
    found = {int(line[0].replace(",", "")): line[1:] for line in lines}
    assert [*found] == [300, 1000, 2000, 5000, 10_000, 20_000, 50_000]
    plan = plan_margins(3500)
    widths = f"±{plan.band_width:.3f}", f"±{plan.group_width:.3f}"
    assert found[5000] == [widths[0], str(plan.bands), widths[1], str(plan.groups)]
    assert "353" in second
    both = json.loads(ok("plan", "--json"))
    assert both["points_per_bin"]["20000"]["0.1"] == 353
    assert both["default"]["5000"]["bands"] == plan.bands


def test_rows_for_a_width():
    ((labels, found),) = json.loads(ok("plan", "--within", "0.1", "--groups", "8", "--json")).items()
    assert found["groups"] == 8
    assert found["group_width"] <= 0.1
    assert plan_margins(round(0.95 * CERTIFYING * int(labels)), groups=8).group_width > 0.1
    easier = json.loads(ok("plan", "--within", "0.1", "--groups", "8", "--accuracy", "0.9", "--json"))
    assert int(next(iter(easier))) < int(labels)


def test_rows_that_are_too_few():
    out = ok("plan", "--within", "0.03", "--rows", "500")
    (needed,) = re.findall(r"One band within 0\.03 takes about ([\d,]+) labelled rows\.", out)
    rows = round(CERTIFYING * int(needed.replace(",", "")))
    assert plan_margins(rows, within=0.03, groups=0).band_width <= 0.03
    assert "takes about" not in ok("plan", "--within", "0.03", "--rows", str(2 * rows))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--within", "0.1", "--epsilon", "0.1"), "pass one kind of option"),
        (("--groups", "4", "--points-per-bin", "10"), "pass one kind of option"),
        (("--rows", "0"), "--rows is 0; expected 1 or more"),
        (("--within", "2"), "--within is 2; expected a number between 0 and 1"),
    ],
)
def test_refusals(arguments, said):
    code, out, err = run("plan", *arguments)
    assert code != 0
    assert out == ""
    assert said in " ".join(err.split())
