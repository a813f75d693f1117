-- SPDX-License-Identifier: Apache-2.0 OR MIT
-- :rows rows in memory, an index, and some questions.
CREATE TABLE part(id INTEGER PRIMARY KEY, name TEXT, weight INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows)
INSERT INTO part SELECT i, printf('part-%07d', (i * 7919) % 1000003), (i * 31) % 9973 FROM n;
CREATE INDEX part_name ON part(name);
SELECT count(*), sum(weight), min(name), max(name) FROM part;
SELECT count(*) FROM part WHERE name BETWEEN 'part-0100000' AND 'part-0300000';
