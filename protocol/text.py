"""Text that somebody else has chosen, on our terminal or in our log."""


def printable(text: str) -> str:
    """What would move a terminal's cursor, or end a line, is shown escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )
