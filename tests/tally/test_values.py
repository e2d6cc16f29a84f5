import numpy as np
import pandas as pd
import pytest

from qacal import InputError
from qacal.tally.arrays import as_written, seven_decimals, unit_values, weight_values


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_float32_is_read_as_its_shortest_decimal(dtype):
    stated = np.arange(101) / 100
    np.testing.assert_array_equal(unit_values(stated.astype(dtype), "confidence"), stated)


def test_float32_keeps_its_seven_digits_of_small_numbers():
    small = np.array([1.234567e-5, 3.2e-20, 0.0], dtype=np.float32)
    np.testing.assert_allclose(unit_values(small, "confidence"), small.astype(float), rtol=1e-6)


def test_decimals_of_seven_places_are_read_exactly_from_any_type():
    steps = np.concatenate([np.arange(2000), np.random.default_rng(0).integers(0, 10**7, 20_000), [10**7]])
    decimals = steps / 1e7
    np.testing.assert_array_equal(seven_decimals(decimals), decimals)
    np.testing.assert_array_equal(seven_decimals(decimals.astype(np.float32)), decimals)
    np.testing.assert_array_equal(seven_decimals(np.nextafter(decimals, 2)), decimals)


def test_any_number_is_read_alike_as_float32_and_float64():
    rng = np.random.default_rng(0)
    doubles = np.concatenate([rng.random(20_000), rng.random(20_000) ** 8, [5e-324, 1e-40, 4.9e-8, 1 - 1e-12]])
    short = doubles.astype(np.float32)
    np.testing.assert_array_equal(seven_decimals(as_written(short)), seven_decimals(doubles))
    np.testing.assert_array_equal(as_written(short).astype(np.float32), short)
    assert seven_decimals(doubles[-4:]).tolist() == [0, 0, 0, 1]


def test_minus_zero_is_zero():
    assert np.signbit(unit_values(np.array([-0.0]), "confidence"))[0] == np.False_


def test_messages_say_what_to_do():
    with pytest.raises(InputError, match="Text is not read as a number: convert the column first"):
        unit_values(["True", "False"], "correct")
    with pytest.raises(InputError, match="Leave the row out"):
        unit_values([0.5, None], "confidence")
    with pytest.raises(InputError, match="confidence is one str; expected a list or column"):
        unit_values("confidence", "confidence")
    with pytest.raises(InputError, match=r"confidence\[0\] is 85.0 \(and 2 more\)"):
        unit_values([85, 90, 70], "confidence")


def test_missing_values_of_tables_are_named():
    with pytest.raises(InputError, match=r"confidence\[1\]"):
        unit_values(pd.Series([0.5, None]), "confidence")
    with pytest.raises(InputError, match=r"confidence\[1\] is None"):
        unit_values(pd.Series([0.5, None], dtype="Float64"), "confidence")


def test_too_large_numbers_and_nested_lists_are_refused():
    with pytest.raises(InputError, match=r"confidence\[0\] is 1000"):
        unit_values([10**400], "confidence")
    with pytest.raises(InputError, match="rows of different lengths"):
        unit_values([[0.1], [0.2, 0.3]], "confidence")


@pytest.mark.parametrize("weight", [1e-200, 1e200, -1, float("inf")])
def test_weights_whose_squares_overflow_are_refused(weight):
    with pytest.raises(InputError, match=r"sample_weight\[1\] is"):
        weight_values([1.0, weight], 2)


def test_the_message_for_a_missing_weight_does_not_mention_confidences():
    with pytest.raises(InputError, match=r"sample_weight\[1\] is None; expected a number\. Leave the row out"):
        weight_values([1.0, None], 2)


def test_the_first_invalid_value_is_named():
    with pytest.raises(InputError, match=r"correct\[2\] is 7"):
        unit_values([0, 1, 7, 8], "correct")
    with pytest.raises(InputError, match=r"expected 0 to 1\.$"):
        unit_values([0.5, 1e300], "confidence")
