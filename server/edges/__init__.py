"""The node's network interfaces: ZMTP, gRPC, HTTP, and the peer connections."""
