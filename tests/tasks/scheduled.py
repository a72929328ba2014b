"""An app with a schedule for every second."""

from __future__ import annotations

from weft import tasks

app = tasks.App("timed")


@app.task
def mark(word: str) -> None:
    tasks.current().push("timed.marks", word.encode())


app.schedule("seconds", mark, cron="* * * * * *", args=["tick"], missed="all")
