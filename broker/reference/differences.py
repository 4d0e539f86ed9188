"""The page of differences from Kafka, made from the headers of the API modules.

The header of a module in `broker/api/` ends with `Differs from Kafka:` and a list. The first
sentence of an item is its title, which the judge names (`tests/judge/differences.py`). What belongs
to no API, or to several, stands here. A module that has no place of its own in the template is
under Administration. `scripts/fix` writes the page. A test fails if the page is another one.
"""

import re
import textwrap
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from odradek.broker import api

HEADING: Final = "\nDiffers from Kafka:\n"
WIDTH: Final = 145

TEMPLATE: Final = """\
<!-- made from the headers of the modules in broker/api: scripts/fix makes it anew -->

# Differences from Apache Kafka

The reference is Apache Kafka 4.3.1. This page lists the differences that a user can notice. Any
other difference in an answer about transactions, groups or administration fails a test. Settings
are in [configuration.md](configuration.md).

## Missing

- GSSAPI and delegation tokens. Of several brokers: unclean elections without a person, fetches from
  the nearest replica ([cluster.md](cluster.md#missing)).
- Several certificates of one listener (SNI), keystores in Java's own form (JKS), versions of TLS
  before 1.2.
- Share groups and streams groups.

## Transactions

{txn}
{add_to_txn}
{txn_offsets}
{markers}
{transactions}

## Writing

{produce}
- More requests close the connection. Strings that are not UTF-8; repeated tags; a request with more
  than 200,000 items in its arrays and tagged fields; a request whose answer would be larger than
  `socket.response.max.bytes` (100 MiB); a frame that is not complete after 30 s.

## Reading

{fetch}
{offsets}

## Retention and compaction

{delete_records}
- Retention stops at the last stable offset.
- Compaction keeps the last batch of each segment, without its records if they are not needed.
- The state topics keep deletions and markers for ten minutes. Kafka keeps them for a day. Their
  segments are rolled as soon as compaction is worth while.

## Defaults

- The state topics have one replica without any configuration. They are created on first use.
- `group.initial.rebalance.delay.ms` is 0, `num.partitions` is 4, `group.max.size` is 1,000.

## Groups and their offsets

{group_members}
{offset_commit}
{offset_fetch}
{offset_delete}

## Consumer groups of the new protocol (KIP-848)

{group_consumer}

## Topics

{topics}
{create_partitions}
{metadata}
{topic_partitions}

## Changed settings

IncrementalAlterConfigs, AlterConfigs, DescribeConfigs and ListConfigResources work for topics,
groups and brokers as in Kafka, with these differences:

{alter_configs}
{configs}
- `max.connections` leaves room for five more connections from the machine of the broker itself.
  Kafka has no such reserve; it never refuses brokers.

## Kafka's configuration file

`odradek serve --config server.properties` reads a file that was written for Kafka. It lists every
setting that it does not have, with the line. Settings without effect that Kafka can change while it
runs are accepted, and logged. `--ignore-unknown` starts without those settings.

## Administration

{all others}
- What is named twice is answered once. This holds for DescribeTransactions, DescribeProducers,
  OffsetDelete, ElectLeaders, AlterPartitionReassignments and DescribeLogDirs, so that no small
  request has a huge answer.
- A refusal of a whole request repeats nothing of it. ListPartitionReassignments and
  DescribeUserScramCredentials have one error. Kafka lists the topics and users of the request with
  it.

## Clients

- confluent-kafka cannot be sure to send offsets after a restart of its only broker (seen with
  2.16). Set `metadata.recovery.strategy=none` if you send offsets in transactions. Otherwise
  `send_offsets_to_transaction` can wait for ever (librdkafka issue 5511). It happens with Apache
  Kafka, too.
- confluent-kafka subscribes to internal topics that a pattern matches (seen with 2.16). librdkafka
  does not look at the flag. `topic.blacklist` leaves them out.
- kafka-python 3.0.12 loses a request of a transaction if the connection is refused. It is refused
  while a broker starts. The call then waits for ever. `tests/compat/kafka_python_agent.py` contains
  a workaround.
"""


def page() -> str:
    """Return the text of docs/differences.md."""
    lists = {module.name: list_of(module.name) for module in iter_modules(api.__path__)}
    named = re.findall(r"^\{(\w+)\}$", TEMPLATE, flags=re.MULTILINE)
    others = (found for module, found in sorted(lists.items()) if found and module not in named)
    text = TEMPLATE.replace("{all others}", "\n".join(others))
    text = re.sub(r"^\{(\w+)\}$", lambda found: lists[found[1]], text, flags=re.MULTILINE)
    return "\n\n".join(_laid_out(block) for block in text.strip().split("\n\n")) + "\n"


def list_of(module: str) -> str:
    """Return the list in the header of a module of `broker/api/`; "" if there is none."""
    header = import_module(f"odradek.broker.api.{module}").__doc__ or ""
    return header.partition(HEADING)[2].strip()


def titles() -> list[str]:
    """Return the titles of the page's items, in their order."""
    items = re.findall(r"^- (.*(?:\n  .*)*)", page(), flags=re.MULTILINE)
    return [_parts(" ".join(item.replace("**", "").split()))[0] for item in items]


def _laid_out(block: str) -> str:
    """Return a heading as it is; a paragraph or a list in lines of `WIDTH`."""
    if block.startswith(("#", "<!--")):
        return block
    start, *items = re.split(r"^- ", block, flags=re.MULTILINE)
    return "\n".join(_item(item) for item in items) if items else _in_lines(start)


def _item(text: str) -> str:
    title, rest = _parts(" ".join(text.split()))
    return _in_lines(f"- **{title}.** {rest}" if rest else f"- {title}.", "  ")


def _parts(item: str) -> tuple[str, str]:
    """Return the title of an item without its full stop, and the rest."""
    title, _, rest = item.partition(". ")
    return title.removesuffix("."), rest


def _in_lines(text: str, indent: str = "") -> str:
    return textwrap.fill(
        " ".join(text.split()),
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
