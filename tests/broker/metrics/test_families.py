"""The text of families, as the two parsers of `prometheus_client` read it."""

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.environment.turns import Turns
from odradek.broker.metrics.families import Families, text_of
from odradek.broker.metrics.of_process import of_process
from odradek.broker.values.histogram import Histogram


async def read(families: Families, *, is_open: bool) -> dict[str, Metric]:
    text = (await families.text(Turns(), is_open=is_open)).decode()
    parse = open_families if is_open else text_string_to_metric_families
    return {family.name: family for family in parse(text)}


@pytest.mark.parametrize("is_open", [False, True])
async def test_every_label_and_number_comes_back_as_it_was(is_open: bool) -> None:
    families = Families()
    names = ['"quoted"', "back\\slash", "two\nlines", "\\n", "a}b,c=", "Zürich"]
    for number, name in enumerate(names):
        families.gauge("g", "A gauge.", number / 3, of=name, second="x")
    families.counter("c", "A counter.").add(text_of(of="all"), 2**60)
    families.counter("none", "A counter without samples.")
    found = await read(families, is_open=is_open)
    assert [(each.labels["of"], each.value) for each in found["g"].samples] == [
        (name, number / 3) for number, name in enumerate(names)
    ]
    (sample,) = found["c"].samples
    assert (sample.name, sample.labels, sample.value) == ("c_total", {"of": "all"}, 2**60)
    kinds = {name: family.type for name, family in found.items()}
    assert kinds == {"g": "gauge", "c": "counter", "none": "counter"}
    assert found["g"].documentation == "A gauge."


@pytest.mark.parametrize("is_open", [False, True])
async def test_the_buckets_of_a_histogram_count_all_that_are_shorter(is_open: bool) -> None:
    seconds = Histogram((0.000_25, 1.0))
    for each in (0.000_1, 0.5, 0.5, 3.0):
        seconds.note(each)
    families = Families()
    families.histogram("h", "A histogram.", seconds, op="put")
    found = (await read(families, is_open=is_open))["h"]
    assert found.type == "histogram"
    assert {
        (each.name, each.labels.get("le"), each.labels["op"]): each.value for each in found.samples
    } == {
        ("h_bucket", "0.00025", "put"): 1,
        ("h_bucket", "1", "put"): 3,
        ("h_bucket", "+Inf", "put"): 4,
        ("h_count", None, "put"): 4,
        ("h_sum", None, "put"): 4.0001,
    }


@pytest.mark.parametrize("is_open", [False, True])
async def test_what_the_system_says_of_the_process_is_taken_as_it_is(is_open: bool) -> None:
    families = Families()
    metrics = of_process()
    families.take(metrics)
    found = await read(families, is_open=is_open)
    assert metrics
    for metric in metrics:
        (before,), (after,) = metric.samples, found[metric.name].samples
        assert (after.name, after.value, found[metric.name].type) == (
            before.name,
            before.value,
            metric.type,
        )
