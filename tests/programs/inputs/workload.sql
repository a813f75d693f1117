-- SPDX-License-Identifier: Apache-2.0 OR MIT
-- Deterministic work for the sqlite3 shell: rows, indexes, aggregates, text, JSON, full text.
PRAGMA page_size = 4096;
PRAGMA cache_size = -65536;
CREATE TABLE item (id INTEGER PRIMARY KEY, key INTEGER, name TEXT, body BLOB);
WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number WHERE i < 150000)
INSERT INTO item
SELECT i, (i * 7919) % 100003, printf('name-%d', (i * 31) % 5000), zeroblob(i % 50) FROM number;
CREATE INDEX item_key ON item (key);
CREATE INDEX item_name ON item (name, key);

SELECT 'rows', count(*), sum(key), min(name), max(name), total(length(body)) FROM item;
SELECT name, count(*) AS many, sum(key) FROM item GROUP BY name ORDER BY many DESC, name LIMIT 5;
SELECT 'join', count(*) FROM item AS a JOIN item AS b ON a.key = b.id WHERE a.id % 10 = 0;
SELECT 'window', max(total) FROM (
    SELECT sum(key) OVER (PARTITION BY name ORDER BY id ROWS 10 PRECEDING) AS total FROM item);
SELECT 'text', length(group_concat(upper(substr(name, 3)) || '/' || replace(name, 'a', 'bb')))
FROM item WHERE id % 3 = 0;

CREATE TABLE document (content TEXT);
INSERT INTO document
SELECT json_object('id', id, 'name', name, 'list', json_array(key, key + 1, key + 2))
FROM item WHERE id <= 30000;
SELECT 'json', count(*), sum(json_extract(content, '$.list[2]')) FROM document;

CREATE VIRTUAL TABLE word USING fts5 (text);
INSERT INTO word SELECT printf('w%d w%d w%d', id % 71, id % 113, id % 997) FROM item
WHERE id <= 30000;
SELECT 'match', count(*) FROM word WHERE word MATCH 'w5 AND w7';

BEGIN;
UPDATE item SET body = zeroblob(200), name = name || '-changed' WHERE id % 7 = 0;
DELETE FROM item WHERE id % 11 = 0;
SAVEPOINT inner;
DELETE FROM item;
ROLLBACK TO inner;
COMMIT;
SELECT 'after', count(*), total(length(body)), sum(length(name)) FROM item;
VACUUM;
PRAGMA integrity_check;
.sha3sum --schema
