"""The settings of quotas: what a client may use at once."""

from odradek.broker.config.addresses import AddressSettings
from odradek.broker.config.settings import int32
from odradek.late import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaSettings(AddressSettings):
    """The settings of quotas, and those of addresses."""

    quota_window_num: int = int32(
        11,
        low=1,
        high=1000,
        about=(
            "A client may use at once what its quotas of bytes and time allow for all of these "
            "samples but one."
        ),
    )
    quota_window_size_seconds: int = int32(
        1, low=1, high=3600, about="The time of one sample of `quota.window.num`."
    )
    controller_quota_window_num: int = int32(
        11,
        low=1,
        high=1000,
        about=(
            "The samples for which a client may save up what it does not use of its "
            "controller_mutation_rate."
        ),
    )
    controller_quota_window_size_seconds: int = int32(
        1, low=1, high=3600, about="The time of one sample of `controller.quota.window.num`."
    )
