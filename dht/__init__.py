"""The zero-hop hash table: hashing, partitions, replication, the view, and ZHT's verbs. Pure."""
