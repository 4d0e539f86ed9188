"""The forms of a line of a log: text for people, and one JSON object for a collector. Pure.

Both have the same message: one line, shortened, without control characters, as the names in it are
whatever a client sends. In the text form a traceback stands below its line. In the JSON form it is
the field `exception`, and what a call gives in `extra` are fields of their own:

    time       UTC, to the millisecond: 2026-11-28T05:30:21.123Z
    level      INFO, WARNING, ERROR or CRITICAL
    logger     the module that logs, odradek.txn or odradek.authorizer
    message    the sentence of the text form
    cause      what lines of the same cause share, whatever names they have
    repeats    the number of lines of the cause that this one stands for besides itself
    exception  the traceback, shortened at its beginning
"""

import json
import logging
from datetime import UTC, datetime
from typing import Final

from odradek.protocol.text import printable

TEXT: Final = "text"
JSON: Final = "json"
"""The values of the setting `log.format`."""

LINE_MAX_CHARACTERS: Final = 2000
EXCEPTION_MAX_CHARACTERS: Final = 10_000
OBJECT_MAX_BYTES: Final = 16_000
"""Docker and others cut a line into pieces at 16 KiB, and a piece is no JSON."""
EXCEPTION: Final = "exception"
NO_FIELDS: Final = frozenset(
    (*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "cause", "repeats")
)
"""The attributes of a record that are no field of their own name."""


class TextLine(logging.Formatter):
    """A message is one line, and not a long one. A traceback below it has its own lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return _one_line(super().formatMessage(record))


class JsonLine(logging.Formatter):
    """A record is one JSON object in one line of ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": _one_line(record.getMessage()),
            "cause": str(getattr(record, "cause", record.msg)),
        }
        if repeats := getattr(record, "repeats", 0):
            fields["repeats"] = repeats
        for name, value in vars(record).items():
            if name not in NO_FIELDS:
                is_plain = isinstance(value, int | float)
                fields[name] = value if is_plain else _one_line(str(value))
        if record.exc_info:
            fields[EXCEPTION] = _shortened_exception(self.formatException(record.exc_info))
        return _to_object(fields)


def formatter_of(log_format: str) -> logging.Formatter:
    """Return the formatter of a value of `log.format`."""
    return JsonLine() if log_format == JSON else TextLine()


def start_line(sentence: str, log_format: str) -> str:
    """Return the line that a process prints when it serves: a sentence, or an object with it."""
    if log_format != JSON:
        return sentence
    given = {
        "name": "odradek",
        "levelno": logging.INFO,
        "levelname": logging.getLevelName(logging.INFO),
        "msg": "%s",
        "args": (sentence,),
        "cause": "started",
    }
    return JsonLine().format(logging.makeLogRecord(given))


def _to_object(fields: dict[str, object]) -> str:
    """Return the fields as an object of bounded size: characters beyond ASCII are long in JSON."""
    while len(written := json.dumps(fields)) > OBJECT_MAX_BYTES:
        longest = max(fields, key=lambda name: len(json.dumps(fields[name])))
        text = str(fields[longest])
        half = len(text) // 2
        is_exception = longest == EXCEPTION
        fields[longest] = f"...{text[-half:]}" if is_exception else f"{text[:half]}..."
    return written


def _one_line(text: str) -> str:
    if len(text) > LINE_MAX_CHARACTERS:
        left_out = len(text) - LINE_MAX_CHARACTERS
        text = f"{text[:LINE_MAX_CHARACTERS]}... ({left_out} characters left out)"
    return printable(text)


def _shortened_exception(text: str) -> str:
    """Return the end of a traceback: the error stands there."""
    left_out = len(text) - EXCEPTION_MAX_CHARACTERS
    if left_out <= 0:
        return text
    return f"({left_out} characters left out)...{text[-EXCEPTION_MAX_CHARACTERS:]}"
