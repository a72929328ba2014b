"""Programs in other languages: their compilers, their packages, and a cache of built programs."""
