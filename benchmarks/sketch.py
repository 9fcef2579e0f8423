"""Tables of items: how fast they are encoded and decoded, and how often they fail: `python benchmarks/sketch.py`.

A device with as many items as the table's capacity, texts of up to 32 bytes: rates of `encode_table` and
`decode_table`, the decoder's time as a ratio to `numpy.unique` over the same texts in the same run, and the bytes of
the table per item. Then the number of tables that do not decode, each with its own salt, with as many items as the
capacity and with more, and the expected number of pairs of items that share all five cells. Such a pair makes a table
fail whose load is well below 0.701. Last, the proven bound for one table within its capacity.
"""

from __future__ import annotations

import argparse

import numpy as np
from two_rounds import best_of

from fedhist.protocol.plan import Plan
from fedhist.protocol.plan.terms import table_room, table_shape
from fedhist.protocol.sketch import HASHES, TableNotDecoded, TableShape, decode_table, encode_table

SIZES = (16_384, 200_000)
LABEL_BYTES = 32
# Capacity, items as a multiple of it, and the number of tables per thousand of --tables.
FAILURES = (
    (2, 30.0, 1000),
    (100, 1.0, 1000),
    (6_000, 1.0, 300),
    (6_000, 1.15, 60),
    (6_000, 1.2, 60),
    (6_000, 1.25, 60),
    (6_000, 1.3, 60),
)


def measure(items: int, repeats: int) -> None:
    shape = TableShape(capacity=items, label_bytes=LABEL_BYTES)
    order = np.random.default_rng(1).permutation(items)
    labels = [f"https://example.org/{number}" for number in order.tolist()]
    texts = np.array(labels)
    counts = order + 1
    salt = bytes(32)
    table = encode_table(labels, counts, shape, salt=salt)
    encoding = best_of(lambda: encode_table(labels, counts, shape, salt=salt), repeats)
    decoding = best_of(lambda: decode_table(table, shape, salt=salt), repeats)
    sorting = best_of(lambda: np.unique(texts), repeats)
    print(
        f"{items:>9,}{items / shape.cells:>7.3f}{encoding:>10.3f}{items / encoding:>12,.0f}"
        f"{decoding:>10.3f}{items / decoding:>12,.0f}{decoding / sorting:>8.1f}{8 * shape.length / items:>8.0f}"
    )


def failures(capacity: int, items: int, tables: int) -> None:
    shape = TableShape(capacity=capacity, label_bytes=8)
    labels, counts = list(range(items)), np.ones(items, dtype=np.int64)
    failed = 0
    for number in range(tables):
        salt = number.to_bytes(8, "little")
        try:
            decode_table(encode_table(labels, counts, shape, salt=salt), shape, salt=salt)
        except TableNotDecoded:
            failed += 1
    pairs = tables * items * (items - 1) / 2 / shape.part_cells**HASHES
    load = items / shape.cells
    print(
        f"{capacity:>9,}{items:>8,}{load:>7.3f}{tables:>8,}{failed:>8,}{pairs:>16.1e}{shape.failure_bound:>12.1e}"
    )


def rooms() -> None:
    """The length that the private test for room adds to tables, at a plan's defaults."""
    print(f"\n{'epsilon-select':>14}{'2A':>10}{'MB':>8}")
    for epsilon in (0.1, 0.2, 0.5, 1.0):
        plan = Plan(users=50_000, domain="open", masking="secagg", participants=100, epsilon_select=epsilon)
        more = table_room(plan) - plan.max_items
        print(f"{epsilon:>14}{more:>10,}{8e-6 * table_shape(plan).length:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tables", type=int, default=1000, help="tried for each of the smaller capacities")
    arguments = parser.parse_args()
    print(f"texts of up to {LABEL_BYTES} bytes; seconds are the best of {arguments.repeats}")
    print(f"{'items':>9}{'load':>7}", end="")
    print(f"{'encode s':>10}{'items/s':>12}{'decode s':>10}{'items/s':>12}{'/unique':>8}{'bytes':>8}")
    for items in SIZES:
        measure(items, arguments.repeats)
    print(
        f"\n{'capacity':>9}{'items':>8}{'load':>7}{'tables':>8}{'failed':>8}{'pairs expected':>16}{'bound':>12}"
    )
    for capacity, share, thousandths in FAILURES:
        failures(capacity, round(capacity * share), max(arguments.tables * thousandths // 1000, 1))
    rooms()


if __name__ == "__main__":
    main()
