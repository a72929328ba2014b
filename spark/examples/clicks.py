"""Hits per minute: clicks in a queue, counted by Spark, the counts in a queue and in Parquet.

    python spark/examples/clicks.py                             # starts three nodes and Spark here
    python spark/examples/clicks.py --master spark://HOST:7077  # the same on a Spark cluster
    python spark/examples/clicks.py --servers HOST:7700         # with nodes that run already

The example runs two queries. The first reads clicks, oldest push first, a few thousand at a time,
counts them by minute and page behind a watermark, and writes each final count into the queue
`hits`, exactly once. The second stores the messages of `hits` as Parquet. At the end the program
compares the sum of the counts with the number of clicks, and draws the counts.

On a Spark cluster, all machines must be able to access `--out` and the nodes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import weft
from weft.spark import LagListener, register
from weft.testing import cluster

PAGES = ("home", "search", "item", "basket", "pay")
#: How late a click may be pushed, and how long the count of a minute waits for late clicks.
LATE_S, WATERMARK_S = 30.0, 120.0
BATCH = 1000


def clicks(count: int, minutes: int, seed: int) -> Iterator[bytes]:
    """Generates clicks, busier towards the middle, pushed up to LATE_S after their time."""
    rng = random.Random(seed)
    begin = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    made = (rng.triangular(0, 60 * minutes) for _ in range(count))
    pushed = sorted((at + rng.uniform(0, LATE_S), at) for at in made)
    for _, at in pushed:
        yield _click(begin + timedelta(seconds=at), rng.randrange(500), rng.choice(PAGES))
    # Only a later click makes Spark close a minute.
    yield _click(begin + timedelta(minutes=minutes, seconds=2 * WATERMARK_S), 0, "end")


def _click(at: datetime, user: int, page: str) -> bytes:
    return json.dumps({"at": at.isoformat(), "user": user, "page": page}).encode()


def push_all(client: weft.Client, queue: str, bodies: Iterator[bytes]) -> int:
    count = 0
    with client.queue(queue).producer(batch_count=BATCH) as producer:
        for body in bodies:
            producer.send(body)
            count += 1
    return count


def per_minute(events: DataFrame) -> DataFrame:
    """Counts clicks by minute and page; each count is emitted once, when its minute is over."""
    click = f.from_json(f.col("value").cast("string"), "at TIMESTAMP, user INT, page STRING")
    return (
        events.select(click.alias("click"))
        .select("click.*")
        .withWatermark("at", f"{WATERMARK_S:.0f} seconds")
        .groupBy(f.window("at", "1 minute").alias("minute"), "page")
        .agg(f.count("*").alias("hits"))
        .select(f.col("minute.start").alias("minute"), "page", "hits")
    )


def read(
    spark: SparkSession, servers: str, queue: str, subscription: str, **more: Any
) -> DataFrame:
    reader = spark.readStream.format("weft").option("servers", servers)
    reader = reader.option("subscribe", queue).option("subscription", subscription)
    return reader.options(**more).load()


def count_clicks(spark: SparkSession, servers: str, out: Path, per_batch: int) -> None:
    """clicks -> counts -> hits"""
    events = read(spark, servers, "clicks", "per-minute", maxOffsetsPerTrigger=per_batch)
    hits = per_minute(events).select(f.to_json(f.struct("minute", "page", "hits")).alias("value"))
    (
        hits.writeStream.format("weft")
        .queryName("count")
        .option("servers", servers)
        .option("queue", "hits")
        .option("checkpointLocation", str(out / "checkpoints" / "count"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def keep_hits(spark: SparkSession, servers: str, out: Path) -> None:
    """hits -> Parquet"""
    hit = f.from_json(f.col("value").cast("string"), "minute TIMESTAMP, page STRING, hits LONG")
    hits = read(spark, servers, "hits", "keep").select(hit.alias("hit")).select("hit.*")
    (
        hits.writeStream.format("parquet")
        .queryName("keep")
        .option("path", str(out / "hits"))
        .option("checkpointLocation", str(out / "checkpoints" / "keep"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def plot(rows: list[tuple[datetime, int]], file: Path) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4))
    begin = rows[0][0]
    minutes = [(minute - begin).total_seconds() / 60 for minute, _ in rows]
    axes.bar(minutes, [hits for _, hits in rows])
    axes.set(xlabel=f"minutes since {begin:%H:%M}", ylabel="hits")
    axes.set_title("Hits per minute, through Weft and Spark")
    figure.savefig(file, dpi=120, bbox_inches="tight")
    return True


def session(master: str) -> SparkSession:
    # Executors must start the same Python, which has weft and Arrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("clicks").master(master)
    settings = {
        "spark.python.daemon.module": "weft.spark.daemon",  # Python workers start faster
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register(spark)  # needed in a clone; Spark finds weft by itself if installed from a wheel
    return spark


def main() -> int:
    asked = _arguments()
    out = asked.out or Path(tempfile.mkdtemp(prefix="clicks-"))
    with ExitStack() as stack:
        servers = asked.servers
        if not servers:
            print(f"starting {asked.nodes} nodes", flush=True)
            nodes = stack.enter_context(cluster(asked.nodes))
            nodes.settled()
            servers = ",".join(nodes.servers)
        client = stack.enter_context(weft.connect(servers))
        client.create_queue("clicks")
        client.create_queue("hits")
        pushed = push_all(client, "clicks", clicks(asked.events, asked.minutes, asked.seed))
        print(f"pushed {pushed} clicks", flush=True)
        spark = session(asked.master)
        stack.callback(spark.stop)
        spark.streams.addListener(LagListener())
        began = time.monotonic()
        count_clicks(spark, servers, out, max(1, pushed // 4))
        keep_hits(spark, servers, out)
        print(f"both queries took {time.monotonic() - began:.1f} s")
        return report(spark, out, asked.events)


def report(spark: SparkSession, out: Path, expected: int) -> int:
    hits = spark.read.parquet(str(out / "hits")).where("page != 'end'")
    by_minute = hits.groupBy("minute").agg(f.sum("hits").alias("hits")).orderBy("minute")
    rows = [(row["minute"], row["hits"]) for row in by_minute.collect()]
    found = sum(count for _, count in rows)
    print(f"{found} hits of {expected} clicks in {len(rows)} minutes, in {out / 'hits'}")
    drawn = plot(rows, out / "hits.png")
    print(f"drawn: {out / 'hits.png'}" if drawn else "not drawn: pip install matplotlib")
    return 0 if found == expected else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--master", default="local[2]", help="default local[2]")
    parser.add_argument("--servers", help="nodes that run already, HOST:PORT with commas")
    parser.add_argument("--nodes", type=int, default=3, help="how many to start; default 3")
    parser.add_argument("--events", type=int, default=20_000, help="clicks; default 20000")
    parser.add_argument("--minutes", type=int, default=30, help="over how long; default 30")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="for Parquet, checkpoints and the plot")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
