"""Wire formats: the public gRPC API and the frames of the ZeroMQ data path."""
