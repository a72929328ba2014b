"""The `try:` line for every error code of `weft.errors`: the next command or action."""

from __future__ import annotations

from typing import Final

TRY: Final[dict[str, str]] = {
    "WEFT": "run `weft doctor`: it checks this machine and the node",
    "USAGE": "do as the message says; add --help to the command for its usage",
    "INVALID_ARGUMENT": "do as the message says; add --help to the command for the accepted values",
    "TOO_LARGE": "store large data elsewhere and push its address",
    "QUEUE_NOT_FOUND": "`weft queue list` shows the queues, `weft queue create NAME` creates one",
    "TOPIC_NOT_FOUND": "`weft topic list` shows the topics, `weft topic create NAME` creates one",
    "QUEUE_EXISTS": "`weft queue show NAME` shows the settings, `weft queue update` changes them",
    "QUEUE_IN_USE": "first remove the dead letter from the other queue: `weft queue update NAME"
    " --max-deliveries 0 --dead-letter ''`, or the queue from the topic: `weft topic unbind`",
    "SUBSCRIPTION_NOT_FOUND": "`weft subscription list QUEUE` shows the subscriptions",
    "MESSAGE_LEASED": "wait until the message is acked or nacked, or its lease ends",
    "MISSING_EXTRA": "install the missing package, then run the command again",
    "REFUSED": "ask the operator of the node",
    "UNAUTHENTICATED": "set a token in WEFT_TOKEN; `weft token create` creates one",
    "PERMISSION_DENIED": "use a token with this grant; `weft token list` shows the tokens",
    "QUOTA_EXCEEDED": "delete unused queues, or ask the operator of the node for a higher quota",
    "LEASE_LOST": "the message is delivered again: pop again, or set a longer --lease-ms for the"
    " queue",
    "ALREADY_SETTLED": "nothing to do: the message was acked or nacked before",
    "FENCED": "a newer holder has taken over: stop this process",
    "VERSION_MISMATCH": "read the key and its version with `weft kv lookup --json KEY`, and try"
    " again",
    "RESERVATION_LOST": "the messages are back in the queue or acked: `weft subscription show QUEUE"
    " NAME` shows the position",
    "CALLER_GONE": "nothing to do: no caller waits for the answer; acknowledge the question",
    "BUSY": "run the command again in a moment",
    "QUEUE_FULL": "consume from the queue, or raise its limit: `weft queue update NAME"
    " --max-messages N`",
    "STORAGE_FULL": "free disk space on the node; pops and acks still work",
    "OVERLOADED": "run the command again in a moment, with fewer concurrent clients",
    "RATE_LIMITED": "push more slowly, or ask the operator of the node for a higher rate",
    "UNAVAILABLE": "`weft cluster status` shows which nodes to start; `weft doctor` checks for"
    " other problems",
    "CONNECTION_LOST": "start a node with `weft serve`, or name one with --servers HOST:PORT",
    "DEADLINE_EXCEEDED": "raise --timeout-ms; a push may have been stored, so check with `weft"
    " peek` before you repeat it",
    "CALL_TIMED_OUT": "raise --timeout-ms, or start a program that answers: `weft reply QUEUE`",
    "REPLY_QUEUE_LOST": "run the command again: it makes a new reply queue",
    "SHUTTING_DOWN": "run the command again when the node is back",
    "NOT_PRIMARY": "the partition is moving to another primary; run the command again in a moment",
    "TASK_FAILED": "read the traceback of the worker in the error's `trace`",
    "UPSTREAM_FAILED": "look at the task that failed first: the error names it",
    "WORKER_LOST": "look at the worker's log and memory; a task that kills its worker fails again",
    "TASK_TIMED_OUT": "raise the task's time_limit, or split its work",
    "TASK_CANCELLED": "submit the task again if its result is wanted",
    "BLOCK_LOST": "submit the task that makes the block again",
    "JOB_FAILED": "do as the message says, then start the run again",
    "GATEWAY_FAILED": "read the output of the gateway's rank, then start the job again",
    "TLS": "correct the settings that the message names; `weft tls init` prints matching commands"
    " for nodes and clients",
    "RANK_LOST": "abandon that rank, or start the job again",
    "PROTOCOL": "pass gRPC addresses to --servers, and install the same version of weft on both"
    " sides",
    "STORAGE": "check the node's log, its disk and the permissions of its data directory",
    "STORE_LOCKED": "stop the process that has the directory open, or use another directory",
    "STORE_VERSION": "upgrade weft",
    "STORE_DAMAGED": "restore the directory from a backup; `weft doctor --data DIR` lists the"
    " damage",
    "BACKUP_DAMAGED": "use another backup: no message of this one was restored",
}
