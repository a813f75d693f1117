// SPDX-License-Identifier: Apache-2.0 OR MIT
// buffers.js ROUNDS: buffers outside the JavaScript heap, JSON, regular expressions, compression.
'use strict';

const crypto = require('crypto');
const zlib = require('zlib');

const rounds = Number(process.argv[2]);
const kept = new Array(512).fill(Buffer.alloc(0));

function makeOrders(count, seed) {
  return Array.from({ length: count }, (_, i) => ({
    id: i,
    customer: `customer ${(i * seed) % 977}`,
    items: [1, 2, 3].map((k) => ({ sku: `A${(i * k) % 10007}`, count: k })),
  }));
}

for (let round = 1; round <= rounds; round++) {
  const text = JSON.stringify(makeOrders(3000, round));
  const packed = zlib.gzipSync(text, { level: 1 });
  const orders = JSON.parse(zlib.gunzipSync(packed).toString());
  const skus = new Set(text.match(/"A\d+"/g));
  const hash = crypto.createHash('sha256');
  for (let i = 0; i < 4000; i++) {
    const place = (i * 7919 + round) % kept.length;
    kept[place] = Buffer.alloc(64 + ((i * 977) % 30000), i);
    if (i % 64 === 0) {
      hash.update(kept[(place * 31) % kept.length]);
    }
  }
  console.log(round, orders.length, skus.size, hash.digest('hex').slice(0, 16));
}
