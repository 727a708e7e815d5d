-- A database in memory: rows of changing sizes, an index, a sort, deletes.
PRAGMA journal_mode = OFF;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -4000;
CREATE TABLE t (id INTEGER PRIMARY KEY, k INTEGER, v TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)
  INSERT INTO t SELECT i, (i * 7919) % 200003, printf('%.*c', 20 + i % 100, 'x') FROM n;
CREATE INDEX tk ON t (k);
SELECT count(*), length(group_concat(v)) FROM (SELECT v FROM t ORDER BY k DESC);
DELETE FROM t WHERE id % 20 <> 0;
VACUUM;
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
  INSERT INTO t (k, v) SELECT i, printf('%.*c', 400 + i % 2000, 'y') FROM n;
SELECT count(*), max(length(v)) FROM (SELECT v FROM t ORDER BY v, k);
DROP TABLE t;
CREATE TABLE u AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150000) SELECT i, i % 97 AS j, hex(i * i) AS h FROM n;
SELECT count(*) FROM (SELECT DISTINCT h || j FROM u);
