"""Times of day and dates: `3:30 pm`, `15:30`, `March 5`, `5th of March 2020`, `2020-03-05`, in one spelling."""

from __future__ import annotations

import re

from groupwise.rewards.mathematics.vocabulary import listed

MONTHS = listed("january february march april may june july august september october november december")
"""The months in English, in order."""
_CLOCK = re.compile(r"(\d{1,2})(?::(\d\d))?\s*([ap])\.?\s?m\.?", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,2}):(\d\d)")
_NAME = "|".join(rf"{month}|{month[:3]}\.?" for month in MONTHS) + r"|sept\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_DATE = re.compile(
    rf"(?:{'|'.join(('mon', 'tues', 'wednes', 'thurs', 'fri', 'satur', 'sun'))})day,?\s+", re.IGNORECASE
)
_MONTH_FIRST = re.compile(
    rf"(?P<month>{_NAME})\s+(?:the\s+)?{_DAY}(?:(?:\s*,\s*|\s+)(?P<year>\d{{4}}))?", re.IGNORECASE
)
_DAY_FIRST = re.compile(
    rf"(?:the\s+)?{_DAY}\s+(?:of\s+)?(?P<month>{_NAME})(?:(?:\s*,\s*|\s+)(?P<year>\d{{4}}))?", re.IGNORECASE
)
_ISO = re.compile(r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)")
STARTS_LIKE_A_DATE = re.compile(
    rf"(?:on\s+)?(?:{_MONTH_FIRST.pattern.replace('?P<', '?P<a_')}|{_DAY_FIRST.pattern.replace('?P<', '?P<b_')})(?!\w)",
    re.IGNORECASE,
)
"""A date at the start of a text, which a comma may stand in."""


def moments(text: str, *, gold: bool) -> list[str]:
    """The spellings under which a text that is a time of day or a date is compared; none for any other text.

    A time with "am" or "pm" is also the one of 24 hours, and a gold with them is met by an answer that leaves them
    out. A date with a year is another than one without.
    """
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        hour, minute, half = int(clock[1]), clock[2] or "00", clock[3].lower()
        if not 1 <= hour <= 12:
            return []
        of_24 = hour % 12 + (12 if half == "p" else 0)
        spelled = [f"{hour}:{minute} {half}m"]
        if gold or of_24 > 12:
            spelled.append(f"{of_24}:{minute}")
        return [*spelled, f"{hour}:{minute}"] if gold else spelled
    time = _TIME.fullmatch(text)
    if time is not None and int(time[1]) < 24 and int(time[2]) < 60 and (int(time[1]) > 12 or not gold):
        return [f"{int(time[1])}:{time[2]}"]
    return _date(text)


def _date(text: str) -> list[str]:
    text = re.sub(r"^on\s+", "", _DATE.sub("", text.strip()), flags=re.IGNORECASE)
    match = _MONTH_FIRST.fullmatch(text) or _DAY_FIRST.fullmatch(text) or _ISO.fullmatch(text)
    if match is None:
        return []
    name = match["month"].lower()
    month = int(name) if name.isdigit() else 1 + [m[:3] for m in MONTHS].index(name[:3])
    day = int(match["day"])
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return []
    return [f"{match['year'] or 'year'}-{month}-{day}"]
