-- What the tasks of the tests left in the database.
INSERT INTO holdfast.tasks (id, agent, context_id, state, last_seq, status_seq, attempt, run_ordinal, runs, dialect)
VALUES
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 'demo', 'c', 5, 6, 6, 1, 5, 1, '0.3'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000002', 'demo', 'c', 3, 3, 3, 1, 2, 1, '0.3'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000004', 'demo', 'c', 5, 5, 5, 2, 2, 2, '0.3'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 'demo', 'c', 5, 6, 6, 2, 1, 2, '0.3');
UPDATE holdfast.tasks
   SET turns = 2
 WHERE id IN ('0199a3c1-5b7e-7c3a-9a51-000000000004', '0199a3c1-5b7e-7c3a-9a51-000000000005');
INSERT INTO holdfast.task_events (task, seq, kind, state, attempt, append, last, artifact_id, payload) VALUES
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 1, 1, NULL, 0, false, false, NULL,
  '{"role":"user","parts":[{"text":"chunks=3"},{"text":"mark-1"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 2, 2, 2, 1, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 3, 3, NULL, 1, false, false, 'chunks',
  '{"index":0,"parts":[{"text":"00000000 a"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 4, 3, NULL, 1, true, false, 'chunks',
  '{"index":0,"parts":[{"text":"00000001 b"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 5, 3, NULL, 1, true, true, 'chunks',
  '{"index":0,"parts":[{"text":"00000002 c"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000001', 6, 2, 5, 1, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000002', 1, 1, NULL, 0, false, false, NULL,
  '{"role":"user","parts":[{"text":"ask:what?"},{"text":"mark-2"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000002', 2, 2, 2, 1, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000002', 3, 2, 3, 1, false, false, NULL,
  '{"message":{"role":"agent","parts":[{"text":"what?"}]}}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000004', 1, 1, NULL, 0, false, false, NULL,
  '{"role":"user","parts":[{"text":"wait=1s"},{"text":"mark-5"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000004', 2, 2, 2, 1, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000004', 3, 4, NULL, 1, false, false, NULL,
  '{"outcome":"waits","until":"2025-10-01T10:00:01Z","interruptible":true}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000004', 4, 3, NULL, 2, false, true, 'wait',
  '{"index":0,"parts":[{"text":"Waited."}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000004', 5, 2, 5, 2, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 1, 1, NULL, 0, false, false, NULL,
  '{"role":"user","parts":[{"text":"approve"},{"text":"mark-7"}]}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 2, 2, 2, 1, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 3, 2, 4, 1, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 4, 4, NULL, 0, false, false, NULL, '{"outcome":"resume"}'),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 5, 2, 1, 0, false, false, NULL, NULL),
 ('0199a3c1-5b7e-7c3a-9a51-000000000005', 6, 2, 5, 2, false, false, NULL,
  '{"message":{"role":"agent","parts":[{"text":"resumed by r-1"}]}}');
