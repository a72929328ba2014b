"""The ZeroMQ data path: frames of requests and answers, one struct per verb.

A request is a multipart message ``[call, payload...]``, an answer ``[reply, payload...]``. The
first frame is msgpack, decoded straight into one of the structs, so the decoder refuses a
malformed frame before any other code runs. Every struct is an array on the wire with the verb as
first element; new fields are only added at the end, with a default.

Payload frames carry message batches as stored (see ``Payload``): the node does not decode a payload
on the way in or out unless a pop takes a part of a batch, or a topic filters by headers. ``Push``,
``Multicast``, ``PushTopic``, ``StageBatch`` and two requests of multicasts between nodes have
exactly one payload frame, ``Popped`` and ``Peeked`` have one per leased range, every other verb has
none.

| module                  | structs                                                      |
|-------------------------|--------------------------------------------------------------|
| ``queue_messages``      | push, pop, peek, ack, nack, move, extend, cancel, where      |
| ``topic_messages``      | multicast, topics                                            |
| ``multicast_messages``  | multicasts to several ordered queues, between nodes          |
| ``admin_messages``      | create, update, delete, list, describe, purge, redrive       |
| ``backup_messages``     | snapshot, restore                                            |
| ``commit_messages``     | commit, and the deliveries of its effects                    |
| ``graph_messages``      | messages that wait for others                                |
| ``table_messages``      | the hash table                                               |
| ``cluster_messages``    | members, view, status                                        |
| ``recovery_messages``   | recovery from lost disks                                     |
| ``pipelines``           | subscriptions and stages                                     |

This module exports all structs but those of ``pipelines``. ``verbs`` is the table of requests: the
decoders accept exactly its rows. The gRPC service fills the same structs, so both wires share one
handler per verb.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from weft.transport.zmtp import Frame as Frame

from .admin_messages import *  # noqa: F403
from .backup_messages import *  # noqa: F403
from .cluster_messages import *  # noqa: F403
from .commit_messages import *  # noqa: F403
from .graph_messages import *  # noqa: F403
from .member_info import *  # noqa: F403
from .multicast_messages import *  # noqa: F403
from .queue_messages import *  # noqa: F403
from .queue_messages import Payload, PayloadViews
from .recovery_messages import *  # noqa: F403
from .request import *  # noqa: F403
from .request import Answer, Request
from .table_messages import *  # noqa: F403
from .topic_messages import *  # noqa: F403
from .verbs import ANSWERS, VERBS

# A type checker cannot read the table, and sees the base class.
if TYPE_CHECKING:
    AnyRequest: TypeAlias = Request
    AnyAnswer: TypeAlias = Answer
else:
    AnyRequest = reduce(or_, VERBS)
    AnyAnswer = reduce(or_, ANSWERS)


class Call(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of a request. `rid` is the caller's own number, echoed in the reply."""

    version: int
    rid: int
    request: AnyRequest
    #: For a node that requires a token.
    token: str = ""


class Reply(msgspec.Struct, array_like=True, frozen=True):
    """The first frame of an answer."""

    rid: int
    answer: AnyAnswer


_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_reply = msgspec.msgpack.Decoder(Reply).decode
decode_payload = msgspec.msgpack.Decoder(Payload).decode
decode_payload_views = msgspec.msgpack.Decoder(PayloadViews).decode

#: Errors of a decoder for malformed bytes. Text that is not UTF-8 and too deeply nested arrays
#: raise Python's own errors.
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
