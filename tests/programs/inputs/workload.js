// SPDX-License-Identifier: Apache-2.0 OR MIT
// Deterministic work for node: buffers, JSON, zlib, hashes, files, and worker threads.
'use strict';

const crypto = require('crypto');
const fs = require('fs');
const path = require('path');
const zlib = require('zlib');
const { promisify } = require('util');
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');

const gzip = promisify(zlib.gzip);
const gunzip = promisify(zlib.gunzip);

function makeText(seed, words) {
  const parts = [];
  for (let i = 0; i < words; i++) {
    parts.push(`word${(i * seed) % 397}`);
  }
  return parts.join(' ');
}

function digest(data) {
  return crypto.createHash('sha256').update(data).digest('hex').slice(0, 16);
}

function makeObjects(seed) {
  const objects = [];
  for (let i = 0; i < 5000; i++) {
    objects.push({ id: i, name: `name ${i * seed}`, list: [i, i * 2, i * 3], nested: { seed } });
  }
  return objects;
}

async function work(seed) {
  const text = makeText(seed, 30000);
  const buffers = [];
  for (let i = 0; i < 300; i++) {
    buffers.push(Buffer.alloc((i * 977) % 70000 + 1, i));
  }
  const packed = await gzip(Buffer.from(text));
  const unpacked = (await gunzip(packed)).toString();
  if (unpacked !== text) {
    throw new Error('gzip and gunzip do not agree');
  }
  const copied = JSON.parse(JSON.stringify(makeObjects(seed)));
  const sum = copied.reduce((total, object) => total + object.list[2] + object.name.length, 0);
  return `${digest(text)} ${digest(Buffer.concat(buffers))} ${sum}`;
}

function inWorker(seed) {
  return new Promise((resolve, reject) => {
    const worker = new Worker(__filename, { workerData: seed });
    worker.once('message', resolve);
    worker.once('error', reject);
  });
}

async function writeAndRead(folder) {
  const names = Array.from({ length: 50 }, (_, i) => path.join(folder, `file-${i}`));
  await Promise.all(names.map((name, i) => fs.promises.writeFile(name, makeText(i + 1, 500))));
  const texts = await Promise.all(names.map((name) => fs.promises.readFile(name, 'utf8')));
  return digest(texts.join('\n'));
}

async function main() {
  console.log('main', await work(3));
  const answers = await Promise.all([5, 7, 11, 13].map(inWorker));
  answers.forEach((answer, i) => console.log('worker', i, answer));
  console.log('files', await writeAndRead(process.argv[2]));
  const key = crypto.pbkdf2Sync('password', 'salt', 2000, 32, 'sha256').toString('hex');
  console.log('key', key.slice(0, 16));
}

if (isMainThread) {
  main();
} else {
  work(workerData).then((answer) => parentPort.postMessage(answer));
}
