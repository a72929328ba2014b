"""`python -m bench.languages`: see --help."""

from bench.languages.command import main

if __name__ == "__main__":
    main()
