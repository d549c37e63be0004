package migrations

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// rules keep a step from breaking servers of the previous release, which use the schema during a rollout and after one was
// taken back, and from locking out running servers. CONTRIBUTING.md, Migrations, tells how to change the schema instead.
//
// A space stands for any white space. A statement that matches refused is refused unless it matches unless.
var rules = []struct{ refused, unless, why string }{
	{`^DROP (TABLE|VIEW|MATERIALIZED VIEW|FUNCTION|PROCEDURE|TYPE|SCHEMA|SEQUENCE|TRIGGER|POLICY|INDEX)`, ``, "servers of the previous release may use it"},
	{`^ALTER TABLE .* DROP `, `DROP (CONSTRAINT|NOT NULL|EXPRESSION|DEFAULT)`, "servers of the previous release may use it"},
	{`^ALTER .* RENAME `, ``, "servers of the previous release use the old name: add the new one, and drop the old one a release later"},
	{`^ALTER TABLE .* ALTER (COLUMN )?\w+ (SET DATA )?TYPE `, ``, "it rewrites the table under an exclusive lock: add a column of the new type"},
	{`^ALTER TABLE .* ADD (COLUMN )?.* NOT NULL`, `DEFAULT|ADD CONSTRAINT`, "servers of the previous release insert rows without it: add a default"},
	{`^ALTER TABLE .* DEFAULT .*(clock_timestamp|random|gen_random_uuid|nextval|timeofday)`, ``, "a volatile default rewrites the table under an exclusive lock"},
	{`^ALTER TABLE .* ADD (COLUMN )?.* (GENERATED ALWAYS AS|(SMALL|BIG)?SERIAL)`, ``, "it rewrites the table under an exclusive lock"},
	{
		`^ALTER TABLE .* ADD (CONSTRAINT|CHECK|FOREIGN|UNIQUE|PRIMARY|EXCLUDE)`, `NOT VALID|USING INDEX`,
		"it reads the whole table under an exclusive lock: add it NOT VALID and validate it in a later step, or USING an INDEX made CONCURRENTLY",
	},
	{`^(LOCK|TRUNCATE|CLUSTER|VACUUM|REINDEX)`, `CONCURRENTLY`, "it locks out running servers"},
	{
		`^(UPDATE|DELETE FROM|INSERT INTO) holdfast\.(tasks|task_events|events_|audit_log|idempotency_keys|push_attempts)`, ``,
		"it changes many rows in one transaction: change them in batches, from a server's duty",
	},
}

var (
	contracts  = regexp.MustCompile(`(?m)^-- contracts: since v\d+\.\d+\S* .{10,}$`)
	comment    = regexp.MustCompile(`(?m)--.*$`)
	body       = regexp.MustCompile(`(?is)^(CREATE (OR REPLACE )?(FUNCTION|PROCEDURE).*?)\$(\w*)\$.*\$\w*\$`)
	notNull    = regexp.MustCompile(`(?is)^ALTER\s+TABLE\s+(\S+).*ALTER\s+(COLUMN\s+)?(\w+)\s+SET\s+NOT\s+NULL`)
	index      = regexp.MustCompile(`(?is)^CREATE\s+(UNIQUE\s+)?INDEX\s.*?\sON\s+(ONLY\s+)?(\S+)`)
	concurrent = regexp.MustCompile(`(?is)^(CREATE|DROP|REINDEX).*CONCURRENTLY`)
	created    = regexp.MustCompile(`(?is)^CREATE\s+TABLE\s+(IF\s+NOT\s+EXISTS\s+)?(\S+)`)
	changed    = regexp.MustCompile(`(?is)^(ALTER\s+TABLE(\s+ONLY)?|UPDATE|INSERT\s+INTO|DELETE\s+FROM)\s+([\w.]+)`)
)

// statements splits a step. A statement has the comments above it.
func statements(step string) (all []string) {
	_, up, _ := strings.Cut(step, "-- +goose Up")
	var one strings.Builder
	whole := false
	for line := range strings.Lines(up) {
		switch {
		case strings.HasPrefix(line, "-- +goose StatementBegin"):
			whole = true
			continue
		case strings.HasPrefix(line, "-- +goose StatementEnd"):
			whole = false
		default:
			one.WriteString(line)
			if whole || !strings.HasSuffix(strings.TrimSpace(comment.ReplaceAllString(line, "")), ";") {
				continue
			}
		}
		all = append(all, one.String())
		one.Reset()
	}
	return all
}

// lint returns what is wrong with a step.
func lint(step string) (wrong []string) {
	var fresh, validated []string // tables of this step; the statements that validate constraints
	bare := strings.Contains(step, "-- +goose NO TRANSACTION")
	if !bare && !strings.Contains(step, "SET LOCAL lock_timeout") {
		wrong = append(wrong, "set a lock_timeout: a step that waits for a lock makes all others wait")
	}
	if strings.Contains(step, "-- +goose Down") {
		wrong = append(wrong, "nothing takes a step back: leave out its Down")
	}
	for _, s := range statements(step) {
		sql := strings.TrimSpace(comment.ReplaceAllString(s, ""))
		sql = body.ReplaceAllString(sql, "$1") // runs later
		if m := created.FindStringSubmatch(sql); m != nil {
			fresh = append(fresh, m[2])
		}
		if strings.Contains(strings.ToUpper(sql), "VALIDATE CONSTRAINT") {
			validated = append(validated, sql)
		}
		if contracts.MatchString(s) {
			continue
		}
		refuse := func(why string) { wrong = append(wrong, fmt.Sprintf("%.60s: %s", sql, why)) }
		if concurrent.MatchString(sql) && !bare {
			refuse("CONCURRENTLY needs -- +goose NO TRANSACTION")
		}
		if m := changed.FindStringSubmatch(sql); m != nil && has(fresh, m[3]) {
			continue
		}
		if m := index.FindStringSubmatch(sql); m != nil && !has(fresh, m[3]) && m[2] == "" && !concurrent.MatchString(sql) {
			refuse("it locks out writers while it builds: create it CONCURRENTLY, in a step with -- +goose NO TRANSACTION")
		}
		if m := notNull.FindStringSubmatch(sql); m != nil && !has(validated, m[1]) {
			refuse("it reads the whole table under an exclusive lock: validate a check (" + m[3] + " IS NOT NULL) before")
		}
		for _, r := range rules {
			if match(r.refused, sql) && (r.unless == "" || !match(r.unless, sql)) {
				refuse(r.why)
			}
		}
	}
	return wrong
}

func match(pattern, sql string) bool {
	return regexp.MustCompile(`(?is)` + strings.ReplaceAll(pattern, " ", `\s+`)).MatchString(sql)
}

func has(all []string, table string) bool {
	for _, one := range all {
		if strings.Contains(one, strings.TrimSuffix(table, ";")) {
			return true
		}
	}
	return false
}

func TestStepsExpandFirst(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(FS, "*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		step, err := FS.ReadFile(file)
		require.NoError(t, err)
		for _, w := range lint(string(step)) {
			t.Errorf("%s: %s", file, w)
		}
	}
}

// Each line of SQL fits beside another on a screen.
func TestLinesAreShort(t *testing.T) {
	t.Parallel()
	const most = 120
	for _, dir := range []string{".", "../queries", "../bench", "../internal"} {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".sql" {
				return err
			}
			sql, err := os.ReadFile(path)
			for i, line := range strings.Split(string(sql), "\n") {
				if n := utf8.RuneCountInString(line); n > most {
					t.Errorf("%s:%d has %d characters: write one clause a line, of at most %d", path, i+1, n, most)
				}
			}
			return err
		})
		require.NoError(t, err)
	}
}

// long are the statements that have more lines than others may.
var long = map[string]int{
	"QueueClaim": 86, // it must lock queue rows and tasks in one snapshot, and counts only what it could lock
}

// A statement writes only what most rows need; others of the same transaction write the rest. Each part costs, also without rows.
func TestStatementsAreShort(t *testing.T) {
	t.Parallel()
	const most = 60
	files, err := filepath.Glob("../queries/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, query := range strings.Split(string(text), "\n-- name: ")[1:] {
			name, _, _ := strings.Cut(query, " ")
			lines := 0
			for _, line := range strings.Split(query, "\n")[1:] {
				if line != "" && !strings.HasPrefix(line, "--") {
					lines++
				}
			}
			if lines > max(most, long[name]) {
				t.Errorf("%s: %s has %d lines: put what few rows need into statements of their own, of at most %d", file, name, lines, most)
			}
		}
	}
}

func TestLintRefuses(t *testing.T) {
	t.Parallel()
	in := func(sql string) string {
		return "-- About.\n\n-- +goose Up\nSET LOCAL lock_timeout = '5s';\n" + sql + "\n"
	}
	for sql, why := range map[string]string{
		"DROP TABLE holdfast.leases;":                                                            "previous release may use it",
		"ALTER TABLE holdfast.tasks DROP COLUMN agent;":                                          "previous release may use it",
		"ALTER TABLE holdfast.tasks\n    DROP agent;":                                            "previous release may use it",
		"ALTER TABLE holdfast.tasks RENAME COLUMN agent TO bot;":                                 "old name",
		"ALTER TABLE holdfast.tasks ALTER COLUMN state TYPE integer;":                            "column of the new type",
		"ALTER TABLE holdfast.tasks ADD COLUMN x integer NOT NULL;":                              "add a default",
		"ALTER TABLE holdfast.tasks ADD COLUMN x uuid DEFAULT gen_random_uuid();":                "volatile default",
		"ALTER TABLE holdfast.tasks ADD COLUMN x integer GENERATED ALWAYS AS (state) STORED;":    "rewrites the table",
		"ALTER TABLE holdfast.tasks ADD CONSTRAINT x CHECK (state > 0);":                         "NOT VALID",
		"ALTER TABLE holdfast.tasks ADD CONSTRAINT x UNIQUE (agent);":                            "NOT VALID",
		"ALTER TABLE holdfast.tasks ALTER COLUMN agent SET NOT NULL;":                            "validate a check (agent IS NOT NULL)",
		"CREATE INDEX x ON holdfast.tasks (agent);":                                              "CONCURRENTLY",
		"CREATE UNIQUE INDEX x\n    ON holdfast.tasks (agent);":                                  "CONCURRENTLY",
		"CREATE INDEX CONCURRENTLY x ON holdfast.leases (name);":                                 "NO TRANSACTION",
		"TRUNCATE holdfast.leases;":                                                              "locks out",
		"UPDATE holdfast.tasks SET state = 1;":                                                   "in batches",
		"-- contracts: soon\nDROP TABLE holdfast.leases;":                                        "previous release may use it",
		"-- +goose StatementBegin\nDROP FUNCTION holdfast.caller;\n-- +goose StatementEnd":       "previous release may use it",
		"CREATE TABLE holdfast.x (a int);\nALTER TABLE holdfast.tasks ADD COLUMN x serial;":      "rewrites the table",
		"ALTER TABLE holdfast.tasks -- a comment\n    ALTER COLUMN agent TYPE varchar USING '';": "column of the new type",
	} {
		wrong := lint(in(sql))
		require.NotEmpty(t, wrong, sql)
		require.Contains(t, strings.Join(wrong, "\n"), why, sql)
	}
	require.Contains(t, lint("-- +goose Up\nSELECT 1;\n")[0], "lock_timeout")
	require.Contains(t, lint("-- +goose Up\nSET LOCAL lock_timeout = '5s';\n-- +goose Down\n")[0], "Down")
	for _, sql := range []string{
		"CREATE TABLE holdfast.x (a integer NOT NULL);\nCREATE INDEX x_a ON holdfast.x (a);\nALTER TABLE holdfast.x ADD CONSTRAINT a CHECK (a > 0);",
		"ALTER TABLE holdfast.tasks ADD COLUMN x integer;",
		"ALTER TABLE holdfast.tasks ADD COLUMN x integer NOT NULL DEFAULT 0;",
		"ALTER TABLE holdfast.tasks ADD COLUMN x timestamptz NOT NULL DEFAULT now();",
		"ALTER TABLE holdfast.tasks ADD CONSTRAINT x CHECK (state > 0) NOT VALID;",
		"ALTER TABLE holdfast.tasks ALTER COLUMN agent DROP NOT NULL;",
		"ALTER TABLE holdfast.tasks VALIDATE CONSTRAINT x;\nALTER TABLE holdfast.tasks ALTER COLUMN agent SET NOT NULL;",
		"CREATE INDEX x ON ONLY holdfast.tasks (agent);",
		"-- contracts: since v1.4 no server reads this column\nALTER TABLE holdfast.tasks DROP COLUMN agent;",
		"-- +goose StatementBegin\nCREATE FUNCTION holdfast.f() RETURNS void LANGUAGE plpgsql AS $$\nBEGIN\n    DROP TABLE x;\n    UPDATE holdfast.tasks SET state = 1;\nEND\n$$;\n-- +goose StatementEnd",
		"CREATE OR REPLACE VIEW holdfast.v_x AS SELECT 1;\nGRANT SELECT ON holdfast.v_x TO holdfast_reader;",
	} {
		require.Empty(t, lint(in(sql)), sql)
	}
	require.Empty(t, lint("-- +goose NO TRANSACTION\n-- +goose Up\nCREATE INDEX CONCURRENTLY x ON holdfast.tasks (agent);\n"))
}
