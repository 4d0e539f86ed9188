"""Text that somebody else has chosen, on our terminal or in our log."""


def printable(text: str) -> str:
    """What would move a terminal's cursor, or end a line, is shown escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


TEXT_MAX = 400
"""The characters of somebody else's text that stand in a sentence of ours."""


def shortened(text: str) -> str:
    """The beginning of a text that is too long for a sentence."""
    return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}..."
