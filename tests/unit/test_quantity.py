"""Quantities as people write them."""

import pytest

from paceline.quantity import (
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_s,
    parse_link,
    parse_share,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 * 2**30),
        ("8GB", 8 * 10**9),
        ("8G", 8 * 2**30),
        ("1.5 kb", 1500),
        ("512", 512),
        ("3 MiB", 3 * 2**20),
    ],
)
def test_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "duration_s"),
    [("90", 90), ("90s", 90), ("2m", 120), ("1.5h", 5400), ("5us", 5e-6), ("5µs", 5e-6), ("10 ms", 0.01)],
)
def test_duration(text, duration_s):
    assert parse_duration_s(text) == pytest.approx(duration_s)


@pytest.mark.parametrize(("text", "share"), [("3%", 0.03), ("0.03", 0.03), ("2.5 %", 0.025)])
def test_share(text, share):
    assert parse_share(text) == pytest.approx(share)


def test_link():
    assert parse_link("12GB/s,5us") == pytest.approx((12e9, 5e-6))
    assert parse_link("1GiB/s") == (2**30, 0.0)


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        (parse_bytes, "much", "such as 8GiB"),
        (parse_bytes, "8 parsec", "not one of B, K"),
        (parse_bytes, "0", "at least one byte"),
        (parse_duration_s, "0", "above zero"),
        (parse_duration_s, "5 days", "not one of us"),
        (parse_share, "3", "try 3%"),
        (parse_share, "0%", "between 0 and 100"),
        (parse_share, "100%", "between 0 and 100"),
        (parse_link, "12GB", "such as 12GB/s"),
    ],
)
def test_what_is_no_quantity_is_refused_with_an_example(parse, text, said):
    with pytest.raises(ValueError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0123, "12.3 ms"),
        (0.1234, "123 ms"),
        (1.5e-5, "15.0 µs"),
        (1.234, "1.23 s"),
        (75, "1 min 15 s"),
        (120, "2 min"),
        (3661, "1 h 1 min"),
        (float("nan"), "–"),
    ],
)
def test_durations_are_shown_in_the_unit_that_fits(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"), [(3 * 2**30, "3.00 GiB"), (100, "100 B"), (1.5 * 2**20, "1.50 MiB"), (0, "0 B")]
)
def test_sizes_are_shown_in_the_unit_that_fits(num_bytes, text):
    assert format_bytes(num_bytes) == text
