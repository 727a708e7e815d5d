\set id random(1, :rows - 500)
SELECT id AS found FROM account WHERE id = :id \gset
SELECT sum(entries) AS total FROM (SELECT owner, count(*) AS entries, string_agg(note, ', ' ORDER BY balance) AS notes
  FROM account WHERE id BETWEEN :id AND :id + 499 GROUP BY owner) owners \gset
SELECT count(*) AS pairs FROM (SELECT id, json_build_object('owner', owner, 'note', note) AS object
  FROM account WHERE id BETWEEN :id AND :id + 99) objects WHERE object ->> 'owner' = 'owner ' || id % 97 \gset
\if :found <> :id or :total <> 500 or :pairs <> 100
SELECT 1 / 0 AS a_wrong_answer;
\endif
