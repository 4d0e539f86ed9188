"""Protobuf messages for tests, without a compiler: their descriptors are made here."""

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import Timestamp

TEXT = FieldDescriptorProto.TYPE_STRING
NUMBER = FieldDescriptorProto.TYPE_INT64
MESSAGE = FieldDescriptorProto.TYPE_MESSAGE


def message(name: str, *fields: tuple[str, Any, str]) -> DescriptorProto:
    found = DescriptorProto(name=name)
    for number, (field, kind, type_name) in enumerate(fields, 1):
        found.field.add(
            name=field,
            number=number,
            type=kind,
            type_name=type_name or None,
            label=FieldDescriptorProto.LABEL_OPTIONAL,
        )
    return found


def classes() -> tuple[Any, Any, Any]:
    """Return the classes of an order with an imported customer, of a note in it, and of a customer.

    A pool of their own, so that no test meets the classes of another one.
    """
    customer = FileDescriptorProto(name="shop/customer.proto", package="shop", syntax="proto3")
    customer.message_type.append(message("Customer", ("name", TEXT, "")))
    order = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/customer.proto", "google/protobuf/timestamp.proto"])
    order.message_type.append(
        message(
            "Order",
            ("item", TEXT, ""),
            ("count", NUMBER, ""),
            ("customer", MESSAGE, ".shop.Customer"),
            ("at", MESSAGE, ".google.protobuf.Timestamp"),
        )
    )
    parcel = message("Parcel", ("number", NUMBER, ""))
    parcel.nested_type.append(message("Label", ("text", TEXT, "")))
    parcel.nested_type.append(message("Note", ("text", TEXT, "")))
    order.message_type.append(parcel)
    pool = DescriptorPool()
    pool.AddSerializedFile(Timestamp.DESCRIPTOR.file.serialized_pb)
    for file in (customer, order):
        pool.AddSerializedFile(file.SerializeToString())
    return (
        GetMessageClass(pool.FindMessageTypeByName("shop.Order")),
        GetMessageClass(pool.FindMessageTypeByName("shop.Parcel.Note")),
        GetMessageClass(pool.FindMessageTypeByName("shop.Customer")),
    )
