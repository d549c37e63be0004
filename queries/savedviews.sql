-- Filters of tasks to which operators gave a name.

-- name: ViewPut :execrows
-- By the primary key. No row: there are @most others.
INSERT INTO holdfast.admin_views (bound, tenant, name, filter)
SELECT @bound, @tenant, @name, @filter
 WHERE @most::integer > (SELECT count(*) FROM holdfast.admin_views v
                          WHERE v.bound = @bound AND v.tenant = @tenant AND v.name <> @name)
ON CONFLICT (bound, tenant, name) DO UPDATE SET filter = excluded.filter;

-- name: Views :many
-- By the primary key.
SELECT name, filter FROM holdfast.admin_views WHERE bound = @bound AND tenant = @tenant ORDER BY name;

-- name: ViewDelete :execrows
-- By the primary key.
DELETE FROM holdfast.admin_views WHERE bound = @bound AND tenant = @tenant AND name = @name;
