-- SPDX-License-Identifier: Apache-2.0 OR MIT
-- Statements of the row mariadb, which each connection repeats. None of them waits for rows of others.
INSERT INTO orders (customer, item, amount, note)
  SELECT 1 + seq * 7919 % 500, CONCAT('item ', seq), seq % 17, REPEAT('x', seq % 90) FROM seq_1_to_40;
SELECT customer, COUNT(*), SUM(amount), GROUP_CONCAT(item ORDER BY id SEPARATOR ',')
  FROM orders GROUP BY customer HAVING COUNT(*) > 2 ORDER BY SUM(amount) DESC, customer LIMIT 20;
SELECT a.item, b.item FROM orders a JOIN orders b ON a.customer = b.customer AND a.id < b.id
  WHERE a.id < 60 ORDER BY a.note, b.id LIMIT 50;
SELECT JSON_OBJECT('customer', customer, 'item', item, 'note', UPPER(note)) FROM orders
  WHERE id % 37 = 5 ORDER BY note, id LIMIT 100;
