"""Programs for the development of Weft; nothing here ships."""
