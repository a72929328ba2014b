"""``python -m tools.facade`` writes the synchronous modules of the client (`make facade`)."""

from __future__ import annotations

from .module_writer import ROOT, generate


def main() -> None:
    for path, text in generate().items():
        file = ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
