r"""When to answer: thresholds whose accepted answers are right often enough, with a stated confidence.

A threshold :math:`t` accepts the answers with :math:`p \ge t`. Wanted is the lowest one with
:math:`a(t) = \Pr(\text{right} \mid p \ge t) \ge a`, the target, and a probability of at most :math:`\alpha` to be wrong
about that (Learn-then-Test: Angelopoulos, Bates, Candes, Jordan and Lei, 2021).

**One threshold.** Fix :math:`t` without looking at the rows of the test. They are independent, so given that
:math:`k` of them are accepted the number of right ones is binomial, :math:`R \sim \mathrm{Bin}(k, a(t))`, and

.. math:: P_t = \Pr(\mathrm{Bin}(k, a) \ge R)

is an exact p-value of :math:`H_t: a(t) < a`. It holds given :math:`k`, whatever :math:`k` is, hence also without
knowing it. Nothing accepted gives :math:`P_t = 1`: nothing was shown. Soft targets in [0, 1] are not binomial; they
get the smaller of :math:`\exp(-k\,\mathrm{kl}(R/k, a))` (Hoeffding) and
:math:`e \Pr(\mathrm{Bin}(k, a) \ge \lfloor R \rfloor)` (Bentkus), two bounds of the same tail.

**Many thresholds.** Candidates are fixed without the rows of the test: hundredths, and thousandths above 0.9. They are
tested in a fixed order, from a *start* downwards, each at the full :math:`\alpha`, until one is not rejected. To
certify anything false, the first false one in that order must be rejected, which happens with probability
:math:`\alpha` at most; so no :math:`\alpha` is spent on the number of candidates. The lowest rejected threshold is the
answer. It does not matter whether :math:`a(t)` rises with :math:`t`.

**The start.** Of :math:`k` accepted rows, even if all are right, none can show anything unless
:math:`a^k \le \alpha`. Beginning at the very strictest threshold would therefore end there, nearly always. Where to
begin must be decided on *other* rows: those that the model was fitted on (it remembers how many had which calibrated
confidence, and how many of them were right), or an eighth of the rows at hand, dealt by the hash of their question and
used for nothing else. Given those, the start is fixed, and what was said above holds. It is the threshold at which the
strongest evidence is to be expected: if of :math:`n` rows to be tested a share :math:`q_t` is accepted, of which
:math:`\hat a_t` are right, then about :math:`\log(1/P_t) \approx n q_t\, \mathrm{kl}(\hat a_t, a)`. To look at
the tested rows themselves would break this: at their labels, grossly; at how many each threshold accepts, a little,
since where strict thresholds are *less* accurate than loose ones, "few were accepted up to here" says that the
accepted rows are better than those to come.

**Groups.** Each of :math:`S` groups has a sequence of its own at :math:`\alpha / S`; what is said of all groups then
holds at once with probability :math:`1 - \alpha`. Groups for which nothing can be shown abstain.

It holds for rows that fitted and tuned nothing, that are independent (of each question one row is kept, chosen by
hash), whose labels are true, and that are like the rows to come.
"""
