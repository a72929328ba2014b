"""The headers by which a question and its answer find each other: a convention between clients.

A node does not read these headers, so every client can take part, over gRPC too. A question is a
message of any queue with the first three headers. The answer is a message of the queue that
`REPLY_TO` names, with the question's `CALL_ID`. docs/how-to/request-and-reply.md has the protocol.
"""

from __future__ import annotations

from typing import Final

#: The queue in which the caller waits for the answer.
REPLY_TO: Final = "weft-reply-to"
#: The name of the call, up to the caller; the answer has it, too.
CALL_ID: Final = "weft-call-id"
#: How long the caller waits for the answer, in milliseconds from the push of the question.
CALL_TIMEOUT_MS: Final = "weft-call-timeout-ms"

#: Set by `call` and `reply`; an application cannot set them there.
RESERVED: Final = frozenset({REPLY_TO, CALL_ID, CALL_TIMEOUT_MS})
