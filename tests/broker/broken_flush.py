"""A broker whose high watermark cannot pass 3, as if the code around it were wrong.

The check fails at the end of a flush, which no task of the broker's runs.
"""

from odradek.broker.cli import main
from odradek.broker.storage.producers import Producers

if __name__ == "__main__":
    high_watermark_is = Producers.high_watermark_is

    def broken(self: Producers, high_watermark: int) -> None:
        assert high_watermark < 3, f"high watermark {high_watermark}"
        high_watermark_is(self, high_watermark)

    Producers.high_watermark_is = broken  # type: ignore[method-assign]
    main()
