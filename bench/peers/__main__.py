"""`python -m bench.peers`: see --help."""

from bench.peers.command import main

if __name__ == "__main__":
    main()
