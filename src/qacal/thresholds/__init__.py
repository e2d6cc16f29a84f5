r"""When to answer: thresholds with a certified accuracy of the accepted answers.

In: labels and probabilities of held-out rows. Out: a threshold, with what it accepts and what is certified.
Open `certified.py` first; `curve.py` has every threshold, `costs.py` the cheapest one, `fit_record.py` what a model
stores about the rows of its fit.

A threshold :math:`t` accepts the answers with :math:`p \ge t`. We want the lowest one with an accuracy
:math:`a(t) = \Pr(\text{correct} \mid p \ge t)` of at least the target :math:`a`, and to be wrong about that with
probability at most :math:`\alpha` (Learn-then-Test: Angelopoulos, Bates, Candes, Jordan and Lei, 2021).

**One threshold.** Fix :math:`t` without looking at the test rows. They are independent, so if :math:`k` of them are
accepted, the number of correct ones is binomial, :math:`R \sim \mathrm{Bin}(k, a(t))`, and

.. math:: P_t = \Pr(\mathrm{Bin}(k, a) \ge R)

is an exact p-value of :math:`H_t: a(t) < a`. It is valid for every :math:`k`, so also if :math:`k` is random. If
nothing is accepted, :math:`P_t = 1`. Soft targets in [0, 1] are not binomial; they get the smaller of
:math:`\exp(-k\,\mathrm{kl}(R/k, a))` (Hoeffding) and :math:`e \Pr(\mathrm{Bin}(k, a) \ge \lfloor R \rfloor)` (Bentkus),
two bounds of the same tail.

**Many thresholds.** Candidates are fixed without the test rows: hundredths, and thousandths above 0.9. They are tested
in a fixed order, from a *start* downwards, each at the full :math:`\alpha`, until one is not rejected. A wrong
certificate requires that the first true :math:`H_t` in that order is rejected, which has probability at most
:math:`\alpha`; so the number of candidates costs nothing. The answer is the lowest rejected threshold. :math:`a(t)`
need not rise with :math:`t`.

**The start.** If all :math:`k` accepted rows are correct, they still show nothing unless :math:`a^k \le \alpha`, so a
test that starts at the strictest threshold would nearly always end there. The start must be chosen on *other* rows:
those of the fit (the model stores how many had which calibrated confidence, and how many of them were correct), or an
eighth of these rows, selected by the hash of their question and used for nothing else. Given those, the start is fixed,
and the argument above holds. It is the threshold with the strongest expected evidence: if a share :math:`q_t` of
:math:`n` test rows is accepted, with accuracy :math:`\hat a_t`, then
:math:`\log(1/P_t) \approx n q_t\, \mathrm{kl}(\hat a_t, a)`. Choosing it on the test rows would break the guarantee:
grossly with their labels, and slightly with the number of rows that each threshold accepts. If strict thresholds are
*less* accurate than loose ones, few rows accepted so far would mean that these are better than the next ones.

**Groups.** Each of :math:`S` groups has its own sequence at :math:`\alpha / S`, so all thresholds hold at once with
probability :math:`1 - \alpha`. Groups without a certified threshold abstain.

**Documents.** If ids repeat, the rows of one id may depend on each other. :math:`a(t)` is then the accuracy of a random
accepted row of a random document with accepted rows, and :math:`P_t` comes from the shares of correct rows among the
accepted rows of each document (:func:`qacal.guarantee.document_p_values`).

The guarantee needs rows that were not used for fitting or tuning, that are independent (or in independent documents),
that have true labels, and that are distributed like future rows.
"""
