from datetime import date, timedelta

import pytest

from focusmem.suites.dates import dates_in, num_days_to, shift_dates

WRITTEN = date(2023, 12, 1)
WEEKS_54 = 378
"""From December 18, 2023 to December 30, 2024."""


def shifted(text, num_days=WEEKS_54):
    return shift_dates(text, num_days, written=WRITTEN)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("on Dec. 26th and", "on Jan. 7th and"),
        ("on Jan. 1st with", "on Jan. 13th with"),
        ("from Dec 18th.", "from Dec 30th."),
        ("on 20 December and return on 23 December.", "on 1 January and return on 4 January."),
        ("on 8 March 2024, offering", "on 21 March 2025, offering"),
        ("from 1st Jan in", "from 13th Jan in"),
        ("(6 March to 8 March 2024)", "(19 March to 21 March 2025)"),
        ("December 25-26", "January 6-7"),
        ("December 18-19", "December 30-31"),
        ("December 19-21", "December 31-January 2"),
        ("December 19-21, 2023", "December 31, 2024-January 2, 2025"),
        ("from Jan 22 to 25 in", "from Feb 3 to 6 in"),
        ("from Jan 1 to Jan 4, 2024.", "from Jan 13 to Jan 16, 2025."),
        ("February 14th, 2024, and February 21st, 2024,", "February 26th, 2025, and March 5th, 2025,"),
        ("from February 28 to March 2, 2024, for", "from March 12 to March 15, 2025, for"),
        ("for 20/12/2023 - 21/12/2023.", "for 01/01/2025 - 02/01/2025."),
        ("(Dec. 25th - Dec. 28th)", "(Jan. 6th - Jan. 9th)"),
        ("on Apr. 20th", "on May 3rd"),
        ("today (February 17, 2024) from", "on March 1, 2025 from"),
    ],
)
def test_every_way_to_write_a_date_is_kept(before, after):
    assert shifted(f"A flight {before}").text == f"A flight {after}"


@pytest.mark.parametrize(
    "text",
    [
        "A hotel for 2 adults and 2 rooms with 5-night stays over $1320.",
        "You may 5 times march on.",
        "Flight 12/2023 from gate 3/4",
        "At 10:30 on 3.4.2024",
    ],
)
def test_text_without_a_date_stays(text):
    found = shifted(text)
    assert (found.text, found.num_dates, found.problem) == (text, 0, None)


def test_dates_that_cannot_be_moved_stay_with_the_reason():
    holiday = "on Valentine's Day week, February 14-21, 2024"
    found = shifted(holiday)
    assert (found.text, found.num_dates) == (holiday, 0)
    assert "Valentine" in found.problem
    assert shifted("on February 30, 2024").problem == "'February 30, 2024' is not a date."


def test_no_days_change_nothing():
    text = "today (February 17, 2024) on Valentine's Day"
    assert shifted(text, 0) == shift_dates(text, 0, written=WRITTEN)
    assert shifted(text, 0).text == text


def test_a_date_without_a_year_is_the_next_such_day():
    assert dates_in("Dec. 18th, 1st Jan, March 3-5", written=WRITTEN) == [
        date(2023, 12, 18),
        date(2024, 1, 1),
        date(2024, 3, 3),
        date(2024, 3, 5),
    ]


@pytest.mark.parametrize("num_weeks", [1, 52, 104, 156, 209])
def test_moving_keeps_days_of_the_week_and_distances(num_weeks):
    text = "from February 28, 2024 to March 4, 2024, then 20/12/2023 and 5 April 2024"
    before = dates_in(text, written=WRITTEN)
    after = dates_in(shifted(text, 7 * num_weeks).text, written=WRITTEN)
    assert after == [one + timedelta(weeks=num_weeks) for one in before]
    assert [one.weekday() for one in after] == [one.weekday() for one in before]


def test_the_distance_is_a_whole_number_of_weeks_and_the_smallest():
    for start in (date(2026, 11, 20), date(2027, 1, 1), date(2023, 12, 18)):
        num_days = num_days_to(start, date(2023, 12, 18))
        first = date(2023, 12, 18) + timedelta(days=num_days)
        assert num_days % 7 == 0
        assert start <= first < start + timedelta(days=7)
