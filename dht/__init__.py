"""The zero-hop hash table: hashing, partitions, the view, and ZHT's verbs. Pure."""
