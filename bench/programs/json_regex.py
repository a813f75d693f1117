# SPDX-License-Identifier: Apache-2.0 OR MIT
"""json_regex.py ORDERS: many small objects of mixed life, in JSON and regular expressions."""

import json
import re
import sys

ROUNDS = 3


def order(number: int) -> dict:
    return {
        "id": number,
        "customer": f"customer {number % 977}",
        "items": [{"sku": f"A{number * k % 10007:05d}", "count": k} for k in range(1, 6)],
        "note": "deliver to door %d, ring %s" % (number % 100, "twice" if number % 3 else "once"),
        "price": number / 7,
    }


def main() -> None:
    document = json.dumps([order(number) for number in range(int(sys.argv[1]))])
    word = re.compile(r'"sku": "(A\d+)"')
    bell = re.compile(r"door (?P<door>\d+), ring (?P<times>once|twice)")
    for _ in range(ROUNDS):
        orders = json.loads(document)
        document = json.dumps(orders)
        skus = word.findall(document)
        rings = [match.groupdict() for match in bell.finditer(document)]
    print(len(orders), len(set(skus)), len(rings), sum(int(ring["door"]) for ring in rings))


main()
