"""Administration: queues, cluster membership, health, certificates."""
