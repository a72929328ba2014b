"""What to do about each error: one line for every code of `weft.errors`."""

from __future__ import annotations

from typing import Final

TRY: Final[dict[str, str]] = {
    "WEFT": "`weft doctor` looks at this machine and the node",
    "USAGE": "--help after the command shows how it is used",
    "INVALID_ARGUMENT": "--help after the command shows what is allowed",
    "TOO_LARGE": "keep large things elsewhere and push their address",
    "QUEUE_NOT_FOUND": "`weft queue list` shows the queues, `weft queue create NAME` makes one",
    "QUEUE_EXISTS": "`weft queue show NAME` shows its settings, `weft queue update` changes them",
    "QUEUE_IN_USE": "cut the other queue loose first: `weft queue update NAME --max-deliveries 0"
    " --dead-letter ''`",
    "SUBSCRIPTION_NOT_FOUND": "`weft subscription list QUEUE` shows those that there are",
    "MESSAGE_LEASED": "wait until it is acked or nacked, or its lease ends",
    "MISSING_EXTRA": "install what is missing, then run the command again",
    "REFUSED": "ask whoever runs the node",
    "UNAUTHENTICATED": "name a token in WEFT_TOKEN; `weft token create` makes one",
    "PERMISSION_DENIED": "ask for a token with such a grant; `weft token list` shows what there is",
    "QUOTA_EXCEEDED": "delete queues that nobody needs, or ask whoever runs the node for more",
    "LEASE_LOST": "the message comes again: pop it again, or give the queue a longer --lease-ms",
    "ALREADY_SETTLED": "nothing: it was settled before",
    "FENCED": "somebody newer has taken over: stop the older one",
    "RESERVATION_LOST": "its messages are in the queue again, or gone: `weft subscription show"
    " QUEUE NAME` says how far it is",
    "BUSY": "run the command again in a moment",
    "QUEUE_FULL": "consume from the queue, or raise its limit: `weft queue update NAME"
    " --max-messages N`",
    "STORAGE_FULL": "free disk space on the node; popping and acking still work",
    "OVERLOADED": "run the command again in a moment, with fewer clients at once",
    "RATE_LIMITED": "push more slowly, or ask whoever runs the node for a higher rate",
    "UNAVAILABLE": "`weft cluster status` says which nodes to start; `weft doctor` says what else"
    " is wrong",
    "CONNECTION_LOST": "start a node with `weft serve`, or name one with --servers HOST:PORT",
    "DEADLINE_EXCEEDED": "give more time with --timeout-ms; a push may have been stored, so look"
    " with `weft peek` before you repeat it",
    "SHUTTING_DOWN": "run the command again when the node is back",
    "NOT_PRIMARY": "the cluster is changing who leads; try again in a moment",
    "GATEWAY_FAILED": "look at what the gateway's rank said, then start the job again",
    "TLS": "set what the message names; `weft tls init` prints commands for nodes and clients that"
    " fit together",
    "RANK_LOST": "abandon that rank, or start the job again",
    "PROTOCOL": "--servers takes gRPC addresses; install the same version of weft on both sides",
    "STORAGE": "look at the node's log, its disk and who may write there",
    "STORE_LOCKED": "stop the process that has the directory open, or use another directory",
    "STORE_VERSION": "upgrade weft",
    "STORE_DAMAGED": "restore the directory from a backup; `weft doctor --data DIR` says more",
    "BACKUP_DAMAGED": "use another backup: nothing of this one was restored",
}
