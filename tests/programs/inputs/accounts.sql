-- After pgbench with a fixed seed, every sum is known; then memory-hungry queries of many kinds, in several work_mem settings.
SELECT count(*), sum(abalance), min(bid), max(aid) FROM pgbench_accounts;
SELECT count(*), sum(delta) FROM pgbench_history;
SELECT sum(tbalance) = (SELECT sum(bbalance) FROM pgbench_branches) FROM pgbench_tellers;
CREATE TABLE item AS SELECT i AS id, md5(i::text) AS name, i * 7919 % 1009 AS kind, repeat('x', i % 300) AS filler FROM generate_series(1, 100000) i;
CREATE INDEX item_name ON item(name);
CREATE INDEX item_kind ON item USING gin (string_to_array(kind::text || ' ' || id % 7, ' '));
SET work_mem = '64kB';
SELECT md5(string_agg(name, ',' ORDER BY filler, name)) FROM item;
SET work_mem = '200MB';
SELECT md5(string_agg(name, ',' ORDER BY filler, name)) FROM item;
SELECT kind % 10, count(*), count(DISTINCT name), md5(string_agg(left(name, 4), '' ORDER BY id)) FROM item GROUP BY 1 ORDER BY 1;
SELECT count(*) FROM item a JOIN item b ON a.kind = b.kind AND a.id < b.id WHERE a.id < 20000;
SELECT sum(rank) FROM (SELECT rank() OVER (PARTITION BY kind ORDER BY name) AS rank FROM item) ranked;
SELECT md5(jsonb_agg(jsonb_build_object('id', id, 'name', name) ORDER BY id)::text) FROM item WHERE id <= 30000;
SELECT count(*), sum((value->>'id')::int) FROM jsonb_array_elements((SELECT jsonb_agg(jsonb_build_object('id', id)) FROM item)) value;
SELECT count(*) FROM item WHERE string_to_array(kind::text || ' ' || id % 7, ' ') @> ARRAY['5'];
SELECT count(*), sum(length(regexp_replace(name, '[0-9]+', '#', 'g'))) FROM item;
SELECT length(xmlagg(xmlelement(name row, name))::text) FROM item WHERE id < 5000;
CREATE FUNCTION collatz(n bigint) RETURNS int LANGUAGE plpgsql AS $$
DECLARE steps int := 0;
BEGIN
  WHILE n > 1 LOOP
    n := CASE WHEN n % 2 = 0 THEN n / 2 ELSE 3 * n + 1 END;
    steps := steps + 1;
  END LOOP;
  RETURN steps;
END $$;
SELECT max(collatz(i)) FROM generate_series(1, 3000) i;
DO $$ BEGIN FOR i IN 1..300 LOOP BEGIN PERFORM 1 / (i % 3); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;
DELETE FROM item WHERE id % 3 = 0;
VACUUM ANALYZE item;
SELECT count(*), sum(id) FROM item;
SELECT sum(n) FROM (WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 100000) SELECT n FROM t) numbers;
