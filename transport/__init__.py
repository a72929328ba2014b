"""Wire transports between processes: ZMTP framing and Noise encryption."""
