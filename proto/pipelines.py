"""Subscriptions and staged publish on the wire: all structs of ``subscription_messages`` and
``stage_messages``, under one name."""

from __future__ import annotations

from .stage_messages import *  # noqa: F403
from .subscription_messages import *  # noqa: F403
