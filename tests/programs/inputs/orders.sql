-- @rows orders: indexes, joins, windows, JSON, full-text search, triggers, transactions, vacuum. Every figure is derived from the row number.
.mode list
.timer off
PRAGMA cache_size = -20000;
CREATE TABLE customer(id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT NOT NULL);
CREATE TABLE orders(id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customer(id), day INTEGER, amount REAL, note TEXT, data BLOB);
CREATE TABLE log(day INTEGER, changes INTEGER);
BEGIN;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
INSERT INTO customer SELECT i, printf('customer %05d', (i * 7919) % 20011), printf('city %d', (i * 31) % 211) FROM n;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < @rows)
INSERT INTO orders SELECT i, (i * 104729) % 20000 + 1, (i * 17) % 365, ((i * 7907) % 100003) / 100.0,
  printf('note %d about %s', i, hex(i * 65537)), zeroblob(i % 200) FROM n;
COMMIT;
CREATE INDEX orders_customer ON orders(customer_id, day);
CREATE INDEX orders_day ON orders(day, amount DESC);
CREATE TRIGGER orders_log AFTER UPDATE ON orders BEGIN INSERT INTO log VALUES (new.day, 1); END;
SELECT count(*), sum(amount), min(amount), max(amount), total(length(data)) FROM orders;
SELECT c.city, count(*), round(sum(o.amount), 2) FROM orders o JOIN customer c ON c.id = o.customer_id GROUP BY c.city ORDER BY 3 DESC LIMIT 20;
SELECT day, id, rank FROM (SELECT day, id, rank() OVER (PARTITION BY day ORDER BY amount DESC, id) AS rank FROM orders) WHERE rank <= 2 ORDER BY day, rank LIMIT 40;
SELECT sum(running) FROM (SELECT sum(amount) OVER (PARTITION BY customer_id ORDER BY day, id) AS running FROM orders);
SELECT count(DISTINCT substr(note, 6, 4)), max(length(note)) FROM orders;
SELECT length(group_concat(note, ';')) FROM orders WHERE day < 60;
SELECT json_extract(json_group_array(json_object('id', id, 'amount', amount)), '$[100].amount'), count(*) FROM orders WHERE day = 17;
SELECT sum(json_extract(value, '$.amount')) FROM json_each((SELECT json_group_array(json_object('id', id, 'amount', amount)) FROM orders WHERE day BETWEEN 10 AND 20));
CREATE VIRTUAL TABLE search USING fts5(note);
INSERT INTO search(rowid, note) SELECT id, note || ' ' || (id % 1009) FROM orders WHERE id % 4 = 0;
SELECT count(*) FROM search WHERE search MATCH '1008 OR 77';
SELECT rowid FROM search WHERE search MATCH 'note NEAR about AND 500' ORDER BY rowid LIMIT 10;
SAVEPOINT change;
UPDATE orders SET amount = amount * 2, note = note || ' changed ' || note WHERE day % 7 = 3;
SELECT sum(changes), count(DISTINCT day) FROM log;
ROLLBACK TO change;
RELEASE change;
UPDATE orders SET note = upper(note), data = zeroblob(0) WHERE id % 3 = 0;
DELETE FROM orders WHERE id % 5 = 0;
SELECT count(*), sum(length(note)), sum(length(data)) FROM orders;
WITH RECURSIVE tree(id, depth) AS (SELECT 1, 0 UNION ALL SELECT tree.id * 2 + bit.value, tree.depth + 1 FROM tree, json_each('[0,1]') bit WHERE tree.depth < 14)
SELECT depth, count(*), max(id) FROM tree GROUP BY depth;
VACUUM;
ANALYZE;
PRAGMA integrity_check;
.sha3sum
