"""docker-compose.yml against the published schema of compose files, and against our commands.

`compose_spec.json` is the schema of the Compose Specification as docker-compose 1.29.2 has it
(https://pypi.org/project/docker-compose/1.29.2/, `compose/config/compose_spec.json`, Apache-2.0).
"""

import importlib
import json
from pathlib import Path

import click
import jsonschema
import pytest
import yaml

from odradek.broker.cli import main
from odradek.broker.config.addresses import listeners_of
from odradek.broker.config.properties import Given
from odradek.broker.config.settling import settle
from tests.cluster.compose import FILE, Service, parsed, services, with_etcd_nodes, words

SCHEMA = Path(__file__).parent / "compose_spec.json"


def check_command(command: list[str]) -> click.Context:
    """Parse the words after `odradek` and run nothing. Raises click.UsageError."""
    assert command[0] == "odradek"
    context = main.make_context("odradek", command[1:])
    group: click.Command = main
    arguments = command[1:]
    while isinstance(group, click.Group):
        name, found, arguments = group.resolve_command(context, arguments)
        assert found is not None
        group = found
        if not isinstance(group, click.Group):
            context = group.make_context(name, arguments, parent=context)
    return context


def test_the_file_keeps_to_the_published_schema() -> None:
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft7Validator(schema).validate(parsed())


def test_a_file_with_an_unknown_key_is_refused() -> None:
    schema = json.loads(SCHEMA.read_text())
    file = parsed()
    file["services"]["etcd"]["volumen"] = []
    with pytest.raises(jsonschema.ValidationError, match="volumen"):
        jsonschema.Draft7Validator(schema).validate(file)


def test_there_are_an_etcd_and_three_brokers() -> None:
    assert [service.name for service in services()] == ["etcd", "broker1", "broker2", "broker3"]


@pytest.mark.parametrize(
    "broker", [service for service in services() if service.is_broker], ids=lambda found: found.name
)
def test_the_command_of_a_broker_parses(broker: Service) -> None:
    context = check_command(list(broker.command))
    assert context.params["data_dir"] == broker.volume
    given = [
        Given(name=name, text=text, source="--set")
        for name, text in (word.split("=", 1) for word in context.params["assignments"])
    ]
    config = settle(given).config
    assert f"broker{config.node_id}" == broker.name
    assert config.etcd_endpoints == "http://etcd:2379"
    inside, outside = listeners_of(config)
    assert (inside.name, inside.port) == ("INSIDE", 9092)
    assert (inside.advertised_host, inside.advertised_port) == (broker.name, 9092)
    published = f"127.0.0.1:{outside.advertised_port}:{outside.port}"
    assert parsed()["services"][broker.name]["ports"] == [published]
    assert (outside.name, outside.advertised_host) == ("HOST", "localhost")


def test_the_ports_that_are_published_differ() -> None:
    """No port was published: no program on the host could use the cluster."""
    ports = [parsed()["services"][each.name]["ports"][0] for each in services() if each.is_broker]
    assert len(set(ports)) == 3


def test_prometheus_scrapes_every_broker_where_it_has_its_metrics() -> None:
    (volume, _) = parsed()["services"]["prometheus"]["volumes"]
    folder, target, _ = volume.split(":")
    assert target == "/etc/prometheus"
    scraped = yaml.safe_load((FILE.parent / folder / "prometheus.yml").read_text())
    ((static,),) = [job["static_configs"] for job in scraped["scrape_configs"]]
    assert static["targets"] == [f"{one.name}:9100" for one in services() if one.is_broker]
    for broker in services():
        assert not broker.is_broker or "metrics.listen=0.0.0.0:9100" in broker.command


def test_the_page_asks_every_broker_at_its_published_port() -> None:
    context = check_command(words(parsed()["services"]["web"]["command"]))
    ports = [
        parsed()["services"][each.name]["ports"][0].split(":")[1]
        for each in services()
        if each.is_broker
    ]
    assert context.params["bootstrap"] == ",".join(f"localhost:{port}" for port in ports)
    assert context.params["listen_on"] == "127.0.0.1:8080"


def test_grafana_finds_the_folders_that_are_mounted_and_the_prometheus() -> None:
    *folders, _ = parsed()["services"]["grafana"]["volumes"]
    mounted = {folder.split(":")[1]: FILE.parent / folder.split(":")[0] for folder in folders}
    provisioning = mounted["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "odradek.yml").read_text())[
        "providers"
    ]
    assert provider["options"]["path"] in mounted


def test_the_healthchecks_parse() -> None:
    for name, service in parsed()["services"].items():
        if name.startswith("broker"):
            kind, *command = service["healthcheck"]["test"]
            assert kind == "CMD"
            check_command(command)


@pytest.mark.parametrize("profile", ["demo", "spark"])
def test_the_command_of_a_profile_parses_and_knows_the_brokers(profile: str) -> None:
    python, dash_m, module, *arguments = words(parsed()["services"][profile]["command"])
    assert (python, dash_m) == ("python", "-m")
    context = importlib.import_module(module).main.make_context(module, arguments)
    brokers = [f"{service.name}:9092" for service in services() if service.is_broker]
    assert context.params["bootstrap"].split(",") == brokers


def test_the_stages_that_services_are_built_from_are_there() -> None:
    stages = [
        line.split(" AS ")[1]
        for line in FILE.with_name("Dockerfile").read_text().splitlines()
        if line.startswith("FROM ")
    ]
    built = [each["build"]["target"] for each in parsed()["services"].values() if "build" in each]
    assert set(built) == {"broker", "demo"}
    assert set(built) < set(stages)
    assert stages[-1] == "broker"  # what `docker build` makes


def test_a_wrong_option_would_be_seen() -> None:
    with pytest.raises(click.UsageError, match="--listn"):
        check_command(["odradek", "serve", "--listn", "x"])


def test_the_commands_of_the_dockerfile_parse() -> None:
    lines = FILE.with_name("Dockerfile").read_text().replace("\\\n", " ").splitlines()
    commands = [
        json.loads(line[line.index("[") :])
        for line in lines
        if line.startswith(("CMD", "HEALTHCHECK"))
    ]
    assert len(commands) == 2
    for command in commands:
        check_command(command)


def test_three_nodes_of_etcd_know_each_other_and_the_brokers_know_all() -> None:
    found = {service.name: service for service in with_etcd_nodes(services(), 3)}
    nodes = [name for name, service in found.items() if not service.is_broker]

    assert nodes == ["etcd1", "etcd2", "etcd3"]
    for name in nodes:
        command = found[name].command
        assert f"--name={name}" in command
        assert f"--advertise-client-urls=http://{name}:2379" in command
        assert f"--initial-advertise-peer-urls=http://{name}:2380" in command
        for other in nodes:
            assert any(f"{other}=http://{other}:2380" in word for word in command)
    for service in found.values():
        if service.is_broker:
            endpoints = ",".join(f"http://{name}:2379" for name in nodes)
            assert f"etcd.endpoints={endpoints}" in service.command
