"""Schemas as a registry keeps them, and the errors that name them."""

from dataclasses import field
from typing import Literal

from odradek.client.errors import Refused, Retriable
from odradek.late import dataclass
from odradek.protocol.errors import ErrorCode

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one uses: by a name, and registered as a version of a subject.

    The name is what the text of the other one has: a full name in Avro, a `$ref` in JSON Schema, an
    imported file in Protobuf.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, and what it refers to."""

    text: str = field(repr=False)
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "references", tuple(self.references))


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema that is registered as a version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema


class SchemaRefused(Refused):
    """A registry refuses a request, or a value does not fit its schema.

    `registry_code` is the registry's own code, such as 40401 for an unknown subject, if it gave
    one.
    """

    def __init__(
        self, message: str, *, code: ErrorCode | None = None, registry_code: int | None = None
    ) -> None:
        super().__init__(message, code=code)
        self.registry_code = registry_code

    def copy(self) -> "SchemaRefused":
        """Return an equal error to raise elsewhere."""
        return SchemaRefused(str(self), code=self.code, registry_code=self.registry_code)


class RegistryAway(Retriable):
    """No server of the registry could answer. The same call may succeed later."""
