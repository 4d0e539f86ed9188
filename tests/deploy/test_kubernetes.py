"""scripts/deploy/kubernetes against the published schemas, and against our own commands.

`kubernetes_schemas.json` has, of the schemas of Kubernetes 1.37 that kubernetes-validate carries
(https://pypi.org/project/kubernetes-validate/1.37.0/, Apache-2.0), the kinds that are used here.
"""

import copy
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from odradek.broker.config.addresses import listeners_of
from odradek.broker.config.broker import BrokerConfig
from odradek.broker.config.properties import Given, read_properties
from odradek.broker.config.settling import settle
from tests.cluster.test_compose_file import check_command

FILE: Final = Path(__file__).parents[2] / "scripts" / "deploy" / "kubernetes" / "odradek.yaml"
SCHEMAS: Final = Path(__file__).with_name("kubernetes_schemas.json")
VARIABLE: Final = re.compile(r"\$\((\w+)\)")
PROPERTIES: Final = "odradek.properties"
ORDINALS: Final = (1, 2, 3)

Resource = dict[str, Any]


@cache
def resources() -> list[Resource]:
    return list(yaml.safe_load_all(FILE.read_text()))


def of_kind(kind: str) -> list[Resource]:
    return [resource for resource in resources() if resource["kind"] == kind]


def validate(resource: Resource) -> None:
    schemas = json.loads(SCHEMAS.read_text())
    schema = {**schemas["properties"][resource["kind"]], "$defs": schemas["$defs"]}
    jsonschema.Draft202012Validator(schema).validate(resource)


@pytest.fixture
def pods() -> Resource:
    """The StatefulSet."""
    (found,) = of_kind("StatefulSet")
    return found


@pytest.fixture
def broker(pods: Resource) -> Resource:
    """The only container of a pod."""
    containers: list[Resource] = pods["spec"]["template"]["spec"]["containers"]
    (found,) = containers
    return found


@pytest.mark.parametrize(
    "resource", resources(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_each_resource_keeps_to_the_published_schema(resource: Resource) -> None:
    validate(resource)


def test_a_field_that_kubernetes_does_not_have_is_refused(pods: Resource) -> None:
    wrong = copy.deepcopy(pods)
    wrong["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(jsonschema.ValidationError, match="livenesProbe"):
        validate(wrong)


def config_of(broker: Resource, ordinal: int) -> BrokerConfig:
    """Return the settings of a pod, as its command and the ConfigMap give them."""
    values = {
        "POD_INDEX": str(ordinal),
        "POD_NAME": f"odradek-{ordinal}",
        "POD_NAMESPACE": "brokers",
        "HOST_IP": f"192.0.2.{ordinal}",
    }
    assert {each["name"] for each in broker["env"]} == values.keys()
    words = [VARIABLE.sub(lambda found: values[found[1]], word) for word in broker["args"]]
    command = [*broker["command"], *(word for word in words if not word.startswith("--config="))]
    assignments = check_command(command).params["assignments"]
    (of_all,) = of_kind("ConfigMap")
    given = [
        Given(name=name, text=text, source="--set")
        for name, text in (word.split("=", 1) for word in assignments)
    ]
    return settle(read_properties(of_all["data"][PROPERTIES], source=PROPERTIES), given).config


@pytest.mark.parametrize("ordinal", ORDINALS)
def test_a_pod_advertises_itself_inside_and_outside(broker: Resource, ordinal: int) -> None:
    config = config_of(broker, ordinal)
    assert config.node_id == ordinal
    inside, outside = listeners_of(config)
    assert inside.advertised_host == f"odradek-{ordinal}.odradek.brokers.svc"
    assert inside.advertised_port == inside.port
    assert outside.advertised_host == f"192.0.2.{ordinal}"
    (door,) = [
        each
        for each in of_kind("Service")
        if each["spec"]["selector"].get("statefulset.kubernetes.io/pod-name")
        == f"odradek-{ordinal}"
    ]
    (port,) = door["spec"]["ports"]
    assert port["nodePort"] == outside.advertised_port
    assert port["targetPort"] == "outside"


def test_the_ports_of_a_pod_are_those_that_the_broker_opens(broker: Resource) -> None:
    config = config_of(broker, 1)
    inside, outside = listeners_of(config)
    assert {each["name"]: each["containerPort"] for each in broker["ports"]} == {
        "inside": inside.port,
        "outside": outside.port,
        "brokers": config.inter_broker_listener_port,
        "metrics": int(config.metrics_listen.rpartition(":")[2]),
    }


def test_every_port_and_path_that_is_named_is_there(broker: Resource, pods: Resource) -> None:
    names = {each["name"] for each in broker["ports"]}
    for service in of_kind("Service"):
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= names
    (policy,) = of_kind("NetworkPolicy")
    named = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert sorted(named) == sorted(names)
    probes = {kind: broker[kind]["httpGet"] for kind in broker if kind.endswith("Probe")}
    assert {probe["port"] for probe in probes.values()} == {"metrics"}
    paths = {kind: probe["path"] for kind, probe in probes.items()}
    assert paths == {"startupProbe": "/live", "livenessProbe": "/live", "readinessProbe": "/ready"}
    mounts = {each["name"] for each in broker["volumeMounts"]}
    volumes = pods["spec"]["template"]["spec"]["volumes"] + [
        each["metadata"] for each in pods["spec"]["volumeClaimTemplates"]
    ]
    assert mounts == {each["name"] for each in volumes}


def test_every_selector_finds_the_pods(pods: Resource) -> None:
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert pods["spec"]["selector"]["matchLabels"] == labels
    (budget,) = of_kind("PodDisruptionBudget")
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["maxUnavailable"] == 1
    (policy,) = of_kind("NetworkPolicy")
    assert policy["spec"]["podSelector"]["matchLabels"] == labels
    selectors = [service["spec"]["selector"] for service in of_kind("Service")]
    assert selectors.count(labels) == 2
    headless = next(each for each in of_kind("Service") if each["spec"].get("clusterIP") == "None")
    assert headless["metadata"]["name"] == pods["spec"]["serviceName"]


def test_the_pods_are_as_many_as_their_doors_outside(pods: Resource) -> None:
    first, count = pods["spec"]["ordinals"]["start"], pods["spec"]["replicas"]
    assert tuple(range(first, first + count)) == ORDINALS
