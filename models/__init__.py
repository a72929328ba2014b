"""The analytical models and simulators of the papers that Weft follows.

They stand alone: no module here imports the product (`weft.errors` and the pure
`weft.credit_buckets` excepted), and none needs a package outside the standard library, except
`figures` (matplotlib) and the Spark half of `sweep` (pyspark). Equal seeds give equal results.

| module | paper | content |
|---|---|---|
| `johnson` | 1, Johnson: stochastic distributed queue | analytical model, equations 1 to 18 |
| `johnson_sim` | 1, sections 2 and 3 | discrete-event simulator of the protocol |
| `shares` | 2, credit scheduler, section II | weighted max-min shares, scheduler in virtual time |
| `credit_threads` | 2, section III | the lock-free writer and scheduler protocol |
| `convoy` | 3, convoy effect, equations 1 to 6 | analytical model |
| `skeen` | 3, algorithm 1 and section IV | simulator of Skeen's and of generic multicast |
| `replicated_skeen` | 3, as Weft runs it | the same, with commits and an outbox |
| `fabriq` | 4, section 4.3 | cost of a pop in hops, with a Monte-Carlo simulation |
| `sweep` | | a grid of parameters in a process pool or as a Spark job |
| `figures` | | the papers' figures, drawn from the corrected models |

Every module names the equations that it departs from, and why.
"""
