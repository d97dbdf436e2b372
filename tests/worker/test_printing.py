"""Times and lines as the command line prints them: nothing that is printed can stop a command."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from settled.worker.printing import moment, stamp


@pytest.mark.parametrize("seconds", [8.6e13, 1e300, math.inf, -8.6e13, -math.inf, math.nan, 253_402_300_799.0])
def test_a_time_that_no_calendar_has_is_told_all_the_same(seconds: float) -> None:
    """A permit that is good for ever, say; and near the calendar's end a time zone may lie beyond it."""
    assert moment(seconds)
    assert datetime.fromisoformat(stamp(seconds)).tzinfo is not None


def test_beyond_the_calendar_people_read_words_and_programs_its_end() -> None:
    assert moment(8.6e13) == "the end of time"
    assert datetime.fromisoformat(stamp(8.6e13)) == datetime.max.replace(tzinfo=UTC)
    assert moment(-8.6e13) == "the beginning of time"
    assert datetime.fromisoformat(stamp(-8.6e13)) == datetime.min.replace(tzinfo=UTC)


def test_any_other_time_is_told_to_the_second() -> None:
    assert datetime.fromisoformat(moment(1_700_000_000.4)).timestamp() == 1_700_000_000
    assert stamp(1_700_000_000.5) == "2023-11-14T22:13:20.500000+00:00"
