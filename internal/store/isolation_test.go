package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"math"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/schema"
	"github.com/holdfast-a2a/holdfast/internal/task"
	"github.com/holdfast-a2a/holdfast/internal/test/storetest"
)

// byCallers are the statements of views, with the arguments that one alone has. All arguments name the victim, so only the policies
// distinguish the callers.
var byCallers = map[string]map[string]any{
	"NameForget":        {"ClientID": danglingName},
	"NameGetOfTenant":   {"Owner": "x"},
	"AdminTaskNamed":    {"ClientID": danglingName},
	"IdempotencyForget": {"Key": danglingKey},
	"MessageAppend":     {"Key": "", "RequestID": uuid.New()},
	"AgentStats":        {"Since": time.Now().Add(-time.Hour)},
	"AgentFailed":       {"Since": time.Now().Add(-time.Hour)},
	"AdminTasks":        {"Before": uuid.Max}, "AdminTasksOfContext": {"Before": uuid.Max},
	"AdminCounts": {"Before": uuid.Max}, "AdminCountsOfContext": {"Before": uuid.Max},
	"AdminArtifacts": {"Artifact": ""},
	"TaskFind":       nil, "TaskRead": nil, "TaskWitness": nil, "EventsWitness": nil, "TaskByID": nil, "TaskYields": nil, "TaskNamed": nil,
	"TaskSeen": nil, "NameGet": nil, "TaskOwners": nil, "TaskCancel": nil, "EventsOf": nil, "EventAt": nil, "EventsOfMany": nil,
	"TasksListed": nil, "TasksListedOfContext": nil, "TasksCounted": nil, "TasksCountedOfContext": nil, "MessageFind": nil,
	"IdempotencyGet": nil, "PushTaskLock": nil, "PushConfigSet": nil, "PushConfigs": nil, "AdminTask": nil,
	"AdminTasksSaying": nil, "AdminLog": nil, "AdminLogBack": nil, "AdminChunks": nil, "PushConfigDelete": nil,
}

// danglingName and danglingKey name a row of the victim that has no task.
func danglingName(x *victim) any { return "dangling " + x.name }
func danglingKey(x *victim) any  { return "dangling " + x.key }

// argument is the value of a parameter of this name.
func (x *victim) argument(name string) any {
	switch name {
	case "ID", "Task", "Lowest", "Highest":
		return x.id
	case "Ids", "Tasks":
		return []uuid.UUID{x.id}
	case "Tenant", "Owner":
		return strings.ToLower(name)
	case "Owners", "Tenants":
		return []string{strings.ToLower(strings.TrimSuffix(name, "s"))}
	case "MaxDuration":
		return time.Duration(math.MaxInt64)
	case "Agent":
		return x.agent
	case "Agents":
		return []string{x.agent}
	case "ClientID":
		return x.name
	case "Key":
		return x.key
	case "RequestID":
		return x.request
	}
	return map[string]any{
		"ContextID": "context", "States": states(&Listing{}), "LowestState": int16(1), "HighestState": int16(8), "TenantWide": true,
		"BeforeAt": Newest.At, "StatusBefore": Newest.At, "BeforeID": uuid.UUID(Newest.ID), "Before": int64(1000), "MaxRows": int32(100), "Bound": int32(50), "MostSeq": int64(1000),
		"Seq": int64(1), "Seqs": []int64{1, 2}, "Upto": int64(walkRows), "Froms": []int64{1}, "Uptos": []int64{100}, "Kinds": []int16{1, 2, 3, 4},
		"WithMessages": true, "WithArtifacts": true, "Artifact": "a", "Width": 3600.0, "Audit": "[{}]", "Metadata": `{"why":"x"}`, "Notice": true,
		"Enqueue": true, "RequestHash": []byte{}, "Payload": `{"role":"user","parts":[]}`, "Forwarded": "sealed",
		"ConfigID": "hook", "Dialect": "1.0", "Url": "http://thief", "Host": "thief:80", "Schemes": "[]", "NextSeq": int64(1), "Most": int32(100),
	}[name]
}

// rowsOf executes a statement of callers on the rows of the victim, and returns how many it read or changed.
func (x *victim) rowsOf(ctx context.Context, v View, name string) (int, error) {
	method := reflect.ValueOf(v.s.q).MethodByName(name)
	args := []reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(v.db)}
	fill := func(param string, to reflect.Value) {
		value, own := byCallers[name][param]
		if of, depends := value.(func(*victim) any); depends {
			value = of(x)
		} else if !own {
			value = x.argument(param)
		}
		// Bound is also a flag, and Since a place, of statements that need neither.
		if is := reflect.ValueOf(value); is.IsValid() && is.Type().AssignableTo(to.Type()) {
			to.Set(is)
		}
	}
	for i, param := range parameters()[name] {
		arg := reflect.New(method.Type().In(2 + i)).Elem()
		if strings.HasSuffix(arg.Type().Name(), "Params") {
			for j := range arg.NumField() {
				fill(arg.Type().Field(j).Name, arg.Field(j))
			}
			if name == "AgentStats" {
				arg.FieldByName("Froms").Set(reflect.ValueOf([]time.Time{byCallers[name]["Since"].(time.Time)}))
			}
		} else {
			if param == "id" {
				param = "iD" // as sqlc writes it beside others
			}
			fill(strings.ToUpper(param[:1])+param[1:], arg)
		}
		args = append(args, arg)
	}
	out := method.Call(args)
	err, _ := out[1].Interface().(error)
	switch {
	case out[0].Kind() == reflect.Slice:
		return out[0].Len(), err
	case out[0].Kind() == reflect.Int64 && name != "MessageFind" && name != "PushTaskLock": // those return a number of an event
		return int(out[0].Int()), err
	}
	return one(err)
}

// parameters returns the names of the generated functions' parameters behind the database.
var parameters = sync.OnceValue(func() map[string][]string {
	out := map[string][]string{}
	files, _ := filepath.Glob("internal/dbsqlc/*.sql.go")
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			panic(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				for _, p := range f.Type.Params.List[2:] {
					out[f.Name.Name] = append(out[f.Name.Name], p.Names[0].Name)
				}
			}
		}
	}
	return out
})

// byServer are the other statements, with the reason why no caller's view has them.
var byServer = map[string]string{}

func init() {
	for why, names := range map[string][]string{
		"many callers' writes in one commit, each with its own owner":                {"TaskCreate", "TaskAdmit", "PushConfigsNew"},
		"at the end of a transaction, with its arguments only":                       {"AuditAppend"},
		"a create, of a row that no policy sees yet; it names its owner":             {"TaskRename"},
		"a run's, fenced by its attempt":                                             {"EventsAppend", "TurnsNext", "TurnsWait", "RunStates", "RunRequeue", "ArtifactIDs", "TaskStateGet", "ContextStateGet", "TaskStateSet", "ContextStateSet", "DialogueIndex", "EventsAt", "RunBegins", "ContextTasks", "CallResults", "RunFor", "RunHandOver", "RunBeat", "RunSilence", "ArtifactsListed", "ArtifactNames", "ArtifactChunks", "ArtifactBegun", "RecordsOf"},
		"a worker's, of any agent's tasks":                                           {"QueueClaim", "RunsOwned", "RunsHeld", "RunsEnded", "RunsRescue", "RemoteExpire", "RemoteLook", "NoticesClaim", "NoticeRecord", "NoticeDrop", "NoticeFacts"},
		"the hub's, for all of a replica's streams: a subscriber has found its task": {"EventsAfter", "EventsCatchUp", "TaskSeqs"},
		"by a resume URL, which names the task and proves it":                        {"ResumeState", "TaskResume", "ResumeFind"},
		"about sessions, not rows":                                                   {"SessionBusy", "Blockers"},
		"a remote worker's, of the agents that it may run":                           {"RemoteRenew", "RemoteLent"},
		"remote workers, by replicas and operators":                                  {"RemoteSeen", "RemoteLeft", "RemoteRetired", "RemoteRetire", "RemoteWorkersOf", "RemoteForget", "RemoteAbsent"},
		"processes and duties": {
			"WorkerRegister", "WorkerRenew", "WorkerRemove", "WorkerCount", "WorkersReap", "AgentsBegan", "QueueClearSuspect", "TimersFire", "LeaseAcquire", "LeaseRelease",
		},
		"the duty calls', of all tasks that called or were called; the messages themselves go through views of their owners": {
			"CallsNew", "CallNote", "CallKnown", "CallRefuse", "CallAnswered", "SettledAdd", "SettledTake", "CallersLock", "QueueRowLock",
			"CallsSettle", "CallersWake", "CallersEnded", "SettledDrop", "CallsVoid", "CallsUnended", "CallsErase", "RelaysDue", "RelayNewest", "RelaysAppend",
		},
		"an operator's": {"CallsOf", "QueueHurry", "PushList", "PushAttempts", "PushDisable", "PushEnable", "PushRedeliver", "AuditChains", "AuditRows"},
		"an operator's, of the whole server, or of a task that a view has found": {
			"AdminRuns", "AdminStatusLines", "AgentHealth", "AgentsServed", "AdminProcesses", "AdminAudit", "JobAdd", "JobsForget", "JobGet", "Jobs", "JobCancel",
			"AdminUsage", "TaskWords", "StatusReasons", "PushLags", "PushLagsOfHosts", "Duties", "TableSizes", "DatabaseFacts", "OldestTask",
		},
		"where a page of an operator ends, rounded: the time itself would tell of another tenant": {"AdminWindow", "AgentWindows", "PushWindow"},
		"the live lists of a replica, which filter in memory":                                     {"AdminTasksByID", "AdminTasksSince", "AdminChanged"},
		"the duty admin_jobs":                           {"JobClaim", "JobPlan", "JobRecord", "JobEnd", "JobRelease"},
		"a retry, of a task that its operator has read": {"TaskRetried"},
		"a dispatcher's, fenced by its claim":           {"PushClaim", "PushNext", "PushLanes", "PushPark", "PushAhead", "PushTasks", "PushLog", "PushRecord"},
		"retention's, of all callers' tasks": {
			"ParkedAgents", "ParkedExpire", "EndedAgents", "EndedBefore", "OpenKeep", "EndedKeep", "KeptUnmoved", "EventsKeep",
			"ArtifactsUnmoved", "ArtifactsErase", "NamesGone", "PushesGone", "TasksLock", "PushCursorsLock", "TasksErase", "Erasures", "EventsErase", "ErasureDone",
			"TaskHold", "ProgressGet", "ProgressSet", "ProgressForget", "KeysForget", "ProcessesForget", "AuditRemoved",
			"RetentionCounts", "TaskStatesGone", "ContextStatesGone", "NoticesGone", "CallsGone",
		},
		"at the end of a transaction of either; it reads and changes no row": {"CommitProve"},
		"upkeep and metrics": {"DatabaseBytes", "TableFigures", "APIKeyCounts", "QueueDepth", "TasksParked", "PushCounts", "PushSecrets", "PushReseal", "TurnsSealed", "ForwardedReseal", "NoteReseal", "NotifySend", "NotifyQueueTrim"},
		"before the caller is known, and the server's own keys":            {"APIKeyFind", "APIKeyUsed", "APIKeyAdd", "APIKeysPage", "APIKeyPlace", "APIKeyRevoke", "SecretGet", "SigningKeys", "SigningKeysLock", "SigningKeyAdd", "SigningKeyReseal", "SigningKeysRetire"},
		"the sessions of operators":                                        {"SessionFind", "SessionAdd", "Sessions", "SessionEnd", "SessionsForget"},
		"the views of operators' lists, of those who see the same tenants": {"ViewPut", "ViewDelete", "Views"},
	} {
		for _, name := range names {
			byServer[name] = why
		}
	}
}

func TestEveryStatementIsListedAsCallersOrServers(t *testing.T) {
	t.Parallel()
	for name := range statements(t) {
		_, caller := byCallers[name]
		server := byServer[name] != ""
		require.False(t, caller && server, "%s cannot be both", name)
		require.True(t, caller || server, "%s is new: if it runs in views add it to byCallers, which tests it as the wrong caller, else to byServer, with the reason", name)
	}
}

func one(err error) (int, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return 1, err
}

// victim is another owner's parked task, with rows in all tables, and beside it a failed one.
type victim struct {
	id, request      uuid.UUID
	agent, name, key string
}

func (f *fixture) victim(agent, tenant, owner, name string) *victim {
	f.t.Helper()
	key := fmt.Sprintf("key of %s at %s", name, agent)
	n := keyed(fresh(agent), key, "1")
	n.Task.Tenant, n.Task.Owner = tenant, owner
	if n.Task.PublicID = name; name == "" {
		n.Task.PublicID = n.Task.ID.String()
	}
	n.ClientID = name != ""
	h := f.create(n)
	p := &pen{s: f.Store, c: f.claim(f.worker(time.Hour), agent, 1)[0]}
	p.must(f.t, status(task.StateWorking), chunk("secret"), status(task.StateInputRequired))
	x := &victim{id: uuid.UUID(h.ID), request: uuid.New(), agent: agent, name: name, key: key}
	f.ok(f.AddMessage(f.t.Context(), &NewMessage{Task: h, Message: user("more"), RequestID: task.ID(x.request)}))
	p = &pen{s: f.Store, c: f.claim(f.worker(time.Hour), agent, 1)[0]}
	p.must(f.t, status(task.StateInputRequired))
	f.setPush(h.ID, hook("hook", "receiver"))
	n = fresh(agent)
	n.Task.Tenant, n.Task.Owner = tenant, owner
	f.create(n)
	p = &pen{s: f.Store, c: f.claim(f.worker(time.Hour), agent, 1)[0]}
	p.must(f.t, status(task.StateWorking), status(task.StateFailed))
	f.exec("INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task) VALUES (now(), $1, $2, $3, '', gen_random_uuid())",
		tenant, owner, "dangling "+x.key)
	f.exec("INSERT INTO holdfast.task_names (tenant, owner, agent, client_id, task) VALUES ($1, $2, $3, $4, gen_random_uuid())",
		tenant, owner, agent, "dangling "+name)
	return x
}

// everything is the content of the tables that callers' statements may change.
func (f *fixture) everything() string {
	f.t.Helper()
	var all strings.Builder
	for _, table := range []string{"tasks", "task_names", "task_events", "task_queue", "idempotency_keys", "push_configs", "push_cursors", "cancel_notices"} {
		all.WriteString(scan[string](f, "SELECT coalesce(string_agg(r, E'\\n' ORDER BY r), '') FROM (SELECT x::text AS r FROM holdfast."+table+" x) y"))
	}
	return all.String()
}

// The owner itself is included, to show that the statements have an effect.
func TestStatementsReachNoRowsOfOthers(t *testing.T) {
	f := parallel(t)
	require.Empty(t, f.WithoutRowSecurity())
	// With a pooler nothing is prepared, and a statement and its set_config are one message.
	pooled := open(t, Options{URL: f.url, RowSecurity: true, Pooled: true})
	strangers := map[string]asker{
		"of another tenant":                  {Tenant: "other", Subject: "owner", Agent: "a"},
		"of another tenant that shares":      {Tenant: "other", Subject: "owner", Agent: "a", TenantWide: true},
		"another subject":                    {Tenant: "tenant", Subject: "other", Agent: "a"},
		"nobody":                             {Agent: "a"},
		"no caller, with visibility: tenant": {Agent: "a", TenantWide: true},
		"a subject with a quote":             {Tenant: `tenant","owner`, Subject: `" OR ''='`, Agent: "a"},
		"a tenant that ends in a backslash":  {Tenant: `x\`, Subject: `,"tenant`, Agent: "a"},
		"a tenant that ends an array":        {Tenant: `x","y","tenant"}`, Subject: "NULL", Agent: "a"},
		"a subject with another's beginning": {Tenant: "tenant\x00", Subject: "owner\x00", Agent: "a"},
	}
	x := f.victim("a", "tenant", "owner", "chosen")
	unnamed := f.victim("a", "tenant", "owner", "")
	before := f.everything()
	for name := range byCallers {
		for who, o := range strangers {
			for _, x := range []*victim{x, unnamed} {
				for _, s := range []*Store{f.Store, pooled} {
					require.Zero(t, storetest.Must(x.rowsOf(t.Context(), o.of(s), name))(t, "%s: %s", name, who), "%s: %s", name, who)
				}
			}
		}
		require.Equal(t, before, f.everything(), name)
	}
	own := map[string]bool{"IdempotencyGet": true, "IdempotencyForget": true} // the owner's only, for either visibility
	i := 0
	for name := range byCallers {
		for who, o := range map[string]asker{
			"the owner":   {Tenant: "tenant", Subject: "owner", Agent: "a"},
			"a colleague": {Tenant: "tenant", Subject: "other", Agent: "a", TenantWide: true},
		} {
			i++
			called := fmt.Sprint("of ", i)
			if name == "TaskFind" || name == "TaskRead" || name == "TaskWitness" { // tasks with an id of the client have statements of their own
				called = ""
			}
			x := f.victim(fmt.Sprint("a", i), "tenant", "owner", called)
			n := storetest.Must(x.rowsOf(t.Context(), o.of([]*Store{f.Store, pooled}[i%2]), name))(t, "%s: %s", name, who)
			if own[name] && who == "a colleague" {
				require.Zero(t, n, "%s: %s", name, who)
			} else {
				require.NotZero(t, n, "%s: %s", name, who)
			}
		}
	}
}

// Whatever tables there are: the role reads and changes no rows of others, even if a statement asks for all.
func TestCallersRoleWithoutPredicates(t *testing.T) {
	f := parallel(t)
	f.ok(f.EnsurePartitions(t.Context()))
	victim := f.victim("a", "tenant", "owner", "chosen")
	f.victim("a", "", "", "") // without an owner, as on a server without authentication
	f.worker(time.Hour)
	type relation struct{ Name, Kind string }
	rows, err := f.conn().Query(t.Context(), `SELECT relname::text AS name, relkind::text AS kind FROM pg_class
		WHERE relnamespace = 'holdfast'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') ORDER BY 1`)
	require.NoError(t, err)
	relations := storetest.Must(pgx.CollectRows(rows, pgx.RowToStructByName[relation]))(t)
	require.Greater(t, len(relations), 20)
	callers := map[string]string{
		"another":                  become(asker{Tenant: "tenant", Subject: "other"}),
		"of another tenant":        become(asker{Tenant: "other", Subject: "owner", TenantWide: true}),
		"no setting":               setAPIRole,
		"a setting that has ended": "SELECT set_config('holdfast.caller', 'x', true); " + setAPIRole,
		"a useless setting":        "SELECT set_config('holdfast.caller', '{}', false); " + setAPIRole,
		"a null setting":           "SELECT set_config('holdfast.caller', '{NULL,NULL,NULL}', false); " + setAPIRole,
	}
	policed := map[string]bool{}
	for who, become := range callers {
		c := f.conn()
		storetest.Must(c.Exec(t.Context(), become, pgx.QueryExecModeSimpleProtocol))(t)
		denied := func(err error) bool {
			var pg *pgconn.PgError
			return errors.As(err, &pg) && pg.Code == "42501"
		}
		for _, r := range relations {
			var n int
			err := c.QueryRow(t.Context(), "SELECT count(*) FROM holdfast."+r.Name).Scan(&n)
			if denied(err) {
				continue
			}
			require.NoError(t, err, "%s: %s", who, r.Name)
			require.Zero(t, n, "%s reads %s", who, r.Name)
			policed[r.Name] = true
			for _, change := range []string{"DELETE FROM holdfast.%[1]s", "UPDATE holdfast.%[1]s SET %[2]s = %[2]s"} {
				column := scan[string](f, "SELECT attname::text FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum = 1", "holdfast."+r.Name)
				tag, err := c.Exec(t.Context(), fmt.Sprintf(change, r.Name, column))
				require.True(t, denied(err) || r.Kind == "v" && err != nil || err == nil && tag.RowsAffected() == 0, "%s: %s of %s: %v %v", who, change, r.Name, tag, err)
			}
			_, err = c.Exec(t.Context(), "TRUNCATE holdfast."+r.Name)
			require.True(t, denied(err) || r.Kind == "v" && err != nil, "%s truncates %s", who, r.Name)
		}
		for _, insert := range []string{
			`INSERT INTO holdfast.tasks (id, agent, tenant, owner, context_id, state, last_seq, status_seq, dialect)
				VALUES (gen_random_uuid(), 'a', 'tenant', 'owner', 'c', 1, 1, 1, '1.0')`,
			"INSERT INTO holdfast.task_events (task, seq, kind, attempt) VALUES ('TASK', 100, 1, 0)",
			"INSERT INTO holdfast.task_queue (id, agent, message_seq) VALUES ('TASK', 'a', 1)",
			"INSERT INTO holdfast.idempotency_keys (day, tenant, owner, key, request_hash, task) VALUES (now(), 'tenant', 'owner', 'k', '', 'TASK')",
			"INSERT INTO holdfast.push_configs (task, config_id, agent, public_id, dialect, url, schemes) VALUES ('TASK', 'x', 'a', 't', '1.0', 'http://thief', '[]')",
			"INSERT INTO holdfast.push_cursors (task, config_id, host, artifacts) VALUES ('TASK', 'x', 'thief:80', true)",
			"INSERT INTO holdfast.cancel_notices (task, agent, reason) VALUES ('TASK', 'a', 'canceled')",
		} {
			_, err := c.Exec(t.Context(), strings.ReplaceAll(insert, "TASK", victim.id.String()))
			require.True(t, denied(err), "%s: %s: %v", who, insert, err)
		}
	}
	require.Equal(t, map[string]bool{
		"tasks": true, "task_names": true, "task_events": true, "task_queue": true, "idempotency_keys": true, "push_configs": true, "push_cursors": true,
		"callers_log": true,
	}, policed, "all that the role may read is under a policy, and the rest is not for it")
	require.Zero(t, scan[int](f, `SELECT count(*) FROM pg_class WHERE relnamespace = 'holdfast'::regnamespace AND NOT relrowsecurity
		AND relname <> 'callers_log' AND has_table_privilege(holdfast.api_role(), oid, 'SELECT')`))

	c := f.conn()
	f.ok(c.Exec(t.Context(), "SELECT set_config('holdfast.caller', 'nonsense', false); "+setAPIRole, pgx.QueryExecModeSimpleProtocol))
	for _, name := range []string{"tasks", "task_events", "callers_log"} {
		require.ErrorContains(t, errOf(c.Exec(t.Context(), "SELECT FROM holdfast."+name)), "malformed array literal", name)
	}
}

// The view repeats the policy, and both must change together.
func TestLogViewHasPolicyOfTasks(t *testing.T) {
	f := parallel(t)
	policy := scan[string](f, "SELECT pg_get_expr(polqual, polrelid) FROM pg_policy WHERE polrelid = 'holdfast.tasks'::regclass")
	_, where, _ := strings.Cut(scan[string](f, "SELECT pg_get_viewdef('holdfast.callers_log')"), "WHERE ")
	bare := func(s string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("t.", "", "(", " ", ")", " ", ";", "").Replace(s)), " ")
	}
	where, owner, _ := strings.Cut(bare(where), " OR SELECT pg_has_role")
	require.Equal(t, bare(policy), where)
	require.Contains(t, owner, "CURRENT_USER, c.relowner, 'USAGE'", "the view does not bypass the policy as the owner of the table does")
	require.Equal(t, []string{"security_barrier=true"}, scan[[]string](f, "SELECT reloptions FROM pg_class WHERE oid = 'holdfast.callers_log'::regclass"))
}

// A request about another's task executes the same statements as one about a task that does not exist.
func TestForeignTaskTakesSameStatements(t *testing.T) {
	f := parallel(t)
	named, unnamed := f.victim("a", "tenant", "owner", "chosen"), f.victim("a", "tenant", "owner", "")
	for _, o := range []asker{
		{Tenant: "tenant", Subject: "other", Agent: "a"},
		{Tenant: "other", Subject: "owner", Agent: "a", TenantWide: true},
		{Tenant: "tenant", Subject: "owner", Agent: "b"},
	} {
		took := func(id string) []string {
			v := o.of(f.Store)
			r := &recorder{querier: v.db}
			v.db = r
			_, err := v.FindTask(t.Context(), id)
			require.Equal(t, task.NotFound, err)
			_, err = v.ReadTask(t.Context(), id, true)
			require.Equal(t, task.NotFound, err)
			return r.took
		}
		require.Equal(t, took(NewID().String()), took(unnamed.id.String()), o)
		require.Equal(t, took("nobody's"), took(named.name), o)
		require.Equal(t, took(NewID().String()), took(named.id.String()), "the UUID of a task that has another name")
	}
}

// recorder records statements.
type recorder struct {
	querier
	took []string
}

func (r *recorder) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	r.took = append(r.took, sql)
	return r.querier.Query(ctx, sql, args...) //nolint:rowserrcheck // the reader of the rows checks them
}

func (r *recorder) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	r.took = append(r.took, sql)
	return r.querier.QueryRow(ctx, sql, args...)
}

// Row-level security must not keep statements from using their index.
func TestPlansOfCallersStatements(t *testing.T) {
	f := parallel(t)
	f.seedLists(4000)
	c := f.conn()
	storetest.Must(c.Exec(t.Context(), "ANALYZE; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET jit = off;"+
		become(asker{Tenant: "tenant", Subject: "owner"}), pgx.QueryExecModeSimpleProtocol))(t)
	texts := statements(t)
	seq := regexp.MustCompile(`Seq Scan on (tasks|task_queue|task_events\w*|idempotency_keys|push_\w+)\b`)
	node := regexp.MustCompile(`Index (?:Only )?Scan using (\w+) on (tasks|task_events\w*|push_\w+|idempotency_keys|task_queue)\b`)
	for name := range byCallers {
		lines := explain(t, c, name, texts[name])
		plan := strings.Join(lines, "\n")
		require.NotRegexp(t, seq, plan, name)
		for i, l := range lines {
			if m := node.FindStringSubmatch(l); m != nil {
				require.Contains(t, lines[i+1], "Index Cond", "%s reads all of %s:\n%s", name, m[1], plan)
			}
		}
	}
}

// If the login may not use the role, the server continues without row-level security, and says so.
func TestWithoutCallersRole(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	f := &fixture{t: t, url: db.URL, ear: newEar()}
	login := "stranger_" + strings.ToLower(rand.Text()[:8])
	f.exec("CREATE ROLE " + login + " LOGIN")
	t.Cleanup(func() {
		c := storetest.Must(pgx.Connect(context.Background(), db.URL))(t)
		defer func() { _ = c.Close(context.Background()) }()
		storetest.Must(c.Exec(context.Background(), "DROP OWNED BY "+login+"; DROP ROLE "+login, pgx.QueryExecModeSimpleProtocol))(t)
	})
	f.exec("GRANT USAGE ON SCHEMA holdfast TO " + login)
	f.exec("GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO " + login)
	u := storetest.Must(url.Parse(db.URL))(t)
	u.User = url.User(login)
	open := func() *Store { return open(t, Options{URL: u.String(), RowSecurity: true}) }
	n := fresh("a")
	storetest.Must(openFixture(t, db.URL, "").Create(t.Context(), n))(t)
	s := open()
	_, err := ownerOf(n).of(s).FindTask(t.Context(), n.Task.PublicID)
	require.ErrorIs(t, err, task.NotFound, "a role with grants that does not own the tables sees nothing")

	f.exec("DO $$ BEGIN EXECUTE format('GRANT %I TO " + login + "', current_user); END $$")
	s = open()
	require.Equal(t, login+" is not a member of role "+db.APIRole(), s.WithoutRowSecurity())
	h := storetest.Must(ownerOf(n).of(s).FindTask(t.Context(), n.Task.PublicID))(t, "a member of the owner of the tables has no policy")
	require.Equal(t, n.Task.ID, h.ID)
	require.ErrorIs(t, errOf(asker{}.of(s).FindTask(t.Context(), n.Task.PublicID)), task.NotFound)

	f.exec("GRANT " + db.APIRole() + " TO " + login)
	s = open()
	require.Empty(t, s.WithoutRowSecurity())
	require.ErrorIs(t, errOf(asker{}.of(s).Header(t.Context(), n.Task.ID)), task.NotFound)
	storetest.Must(ownerOf(n).of(s).Header(t.Context(), n.Task.ID))(t)
}

// The server of one database has no access to another database of its cluster, although it may connect to it.
func TestDatabasesOfOneCluster(t *testing.T) {
	t.Parallel()
	s := storetest.Server(t, map[string]string{"fsync": "off"})
	admin := storetest.Must(pgx.Connect(t.Context(), s.URL))(t)
	defer admin.Close(context.Background()) //nolint:errcheck // the server goes next
	at := func(user *url.Userinfo, database string) string {
		u := storetest.Must(url.Parse(s.URL))(t)
		if u.Path = "/" + database; user != nil {
			u.User = user
		}
		return u.String()
	}
	staging := url.UserPassword("staging", "staging")
	for _, name := range []string{"prod", "staging"} {
		for _, sql := range []string{"CREATE ROLE " + name + " LOGIN CREATEROLE PASSWORD '" + name + "'", "CREATE DATABASE " + name + " OWNER " + name} {
			storetest.Must(admin.Exec(t.Context(), sql))(t, sql)
		}
		own := at(url.UserPassword(name, name), name)
		require.NoError(t, schema.Migrate(t.Context(), own, slog.New(slog.DiscardHandler)))
		one := open(t, Options{URL: own, RowSecurity: true})
		require.Empty(t, one.WithoutRowSecurity())
		n := fresh("a")
		storetest.Must(one.Create(t.Context(), n))(t)
		storetest.Must(ownerOf(n).of(one).FindTask(t.Context(), n.Task.PublicID))(t)
	}
	tables := []string{"tasks", "task_events", "callers_log", "task_queue", "push_configs", "idempotency_keys"}
	foreign := func(prepare string) {
		c := storetest.Must(pgx.Connect(t.Context(), at(staging, "prod")))(t)
		defer c.Close(context.Background()) //nolint:errcheck // nothing to lose
		storetest.Must(c.Exec(t.Context(), prepare))(t, prepare)
		for _, table := range tables {
			_, err := c.Exec(t.Context(), "SELECT FROM holdfast."+table)
			require.ErrorContains(t, err, "permission denied", "%s: %s", prepare, table)
		}
	}
	foreign("SELECT")
	foreign("SET ROLE holdfast_api_staging")

	// Even with grants it sees no rows.
	super := storetest.Must(pgx.Connect(t.Context(), at(nil, "prod")))(t)
	defer super.Close(context.Background()) //nolint:errcheck // the server goes next
	_, err := super.Exec(t.Context(), "GRANT USAGE ON SCHEMA holdfast TO staging; GRANT SELECT ON ALL TABLES IN SCHEMA holdfast TO staging", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	c := storetest.Must(pgx.Connect(t.Context(), at(staging, "prod")))(t)
	defer c.Close(context.Background()) //nolint:errcheck // nothing to lose
	for _, table := range tables {
		var n, there int
		require.NoError(t, c.QueryRow(t.Context(), "SELECT count(*) FROM holdfast."+table).Scan(&n))
		require.Zero(t, n, table)
		require.NoError(t, super.QueryRow(t.Context(), "SELECT count(*) FROM holdfast."+table).Scan(&there))
		require.True(t, there > 0 || table == "push_configs" || table == "idempotency_keys", table)
	}
}

// callersOfAModestRole follows docs/database.md for a server whose role owns its schema and may not create roles.
func callersOfAModestRole(t *testing.T, admin *pgx.Conn, asModest string) {
	t.Helper()
	open := func() *Store { return open(t, Options{URL: asModest, RowSecurity: true}) }
	s := open()
	require.Equal(t, "role holdfast_api_modest does not exist", s.WithoutRowSecurity())
	n := fresh("a")
	storetest.Must(s.Create(t.Context(), n))(t)
	storetest.Must(ownerOf(n).of(s).FindTask(t.Context(), n.Task.PublicID))(t)

	_, err := admin.Exec(t.Context(), "CREATE ROLE holdfast_api_modest NOLOGIN NOINHERIT; GRANT holdfast_api_modest TO modest", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	s = open() // it grants the role what it needs
	require.Empty(t, s.WithoutRowSecurity())
	require.ErrorIs(t, errOf(asker{}.of(s).Header(t.Context(), n.Task.ID)), task.NotFound)
	storetest.Must(ownerOf(n).of(s).ReadTask(t.Context(), n.Task.PublicID, true))(t)
}

// setAPIRole makes a session run as the role of callers' statements.
const setAPIRole = "SELECT set_config('role', holdfast.api_role(), false)"

// become makes a session run as a caller, as callers' statements do.
func become(o asker) string {
	return "SELECT set_config('role', holdfast.api_role(), false), set_config('holdfast.caller', '" + strings.ReplaceAll(o.of(new(Store)).assumption(), "'", "''") + "', false);"
}

// A restored database with another name has no role for callers, and servers that own nothing cannot make it.
func TestMigrateMakesTheRoleOfCallers(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	conn := storetest.Connect(t, db.URL)
	role := pgx.Identifier{db.APIRole()}.Sanitize()
	for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
		storetest.Must(conn.Exec(t.Context(), sql))(t)
	}
	pool := storetest.Must(pgxpool.New(t.Context(), db.URL))(t)
	t.Cleanup(pool.Close)
	require.Contains(t, storetest.Must(CheckRowSecurity(t.Context(), pool))(t), "does not exist")
	require.NoError(t, schema.Migrate(t.Context(), db.URL, slog.New(slog.DiscardHandler)))
	require.Empty(t, storetest.Must(CheckRowSecurity(t.Context(), pool))(t))
}
