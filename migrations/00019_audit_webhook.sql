-- A task that is created with a webhook is one entry of the audit log, which the view shows as two.

-- +goose Up
SET LOCAL lock_timeout = '5s';

CREATE OR REPLACE VIEW holdfast.v_audit AS
SELECT l.at,
       x.action,
       nullif(e.entry ->> 'task', '')::uuid AS task,
       coalesce(e.entry ->> 'agent', '') AS agent,
       coalesce(e.entry ->> 'tenant', '') AS tenant,
       coalesce(e.entry ->> 'subject', '') AS subject,
       coalesce(e.entry ->> 'method', '') AS method,
       coalesce(e.entry ->> 'credential', '') AS credential,
       coalesce(e.entry ->> 'address', '') AS address,
       coalesce(x.object, '') AS object,
       l.login,
       l.chain::integer AS chain,
       l.n
  FROM holdfast.audit_log l
 CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
 CROSS JOIN LATERAL (
    SELECT 1 AS nth, e.entry ->> 'action' AS action, e.entry ->> 'object' AS object
     UNION ALL
    SELECT 2, 'push.set', e.entry ->> 'webhook' WHERE e.entry ->> 'webhook' IS NOT NULL
 ) x
 ORDER BY l.at, l.chain, l.n, e.ord, x.nth;

-- +goose Down
SET LOCAL lock_timeout = '5s';
CREATE OR REPLACE VIEW holdfast.v_audit AS
SELECT l.at,
       e.entry ->> 'action' AS action,
       nullif(e.entry ->> 'task', '')::uuid AS task,
       coalesce(e.entry ->> 'agent', '') AS agent,
       coalesce(e.entry ->> 'tenant', '') AS tenant,
       coalesce(e.entry ->> 'subject', '') AS subject,
       coalesce(e.entry ->> 'method', '') AS method,
       coalesce(e.entry ->> 'credential', '') AS credential,
       coalesce(e.entry ->> 'address', '') AS address,
       coalesce(e.entry ->> 'object', '') AS object,
       l.login,
       l.chain::integer AS chain,
       l.n
  FROM holdfast.audit_log l
 CROSS JOIN LATERAL json_array_elements(l.entries) WITH ORDINALITY AS e (entry, ord)
 ORDER BY l.at, l.chain, l.n, e.ord;
