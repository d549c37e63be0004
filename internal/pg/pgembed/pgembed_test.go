package pgembed_test

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/pg/pgembed"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

// testDir is open to other users, unlike t.TempDir: when root runs the tests, PostgreSQL runs as another user.
func testDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pgembed-") //nolint:usetesting // see above
	require.NoError(t, err)
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func testLog(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func start(t *testing.T, dir string) *pgembed.Server {
	t.Helper()
	_, err := pgembed.Find(t.Context(), testLog(t), 0)
	if err != nil {
		t.Skip("no PostgreSQL is installed here: ", err)
	}
	s, err := pgembed.Start(t.Context(), pgembed.Options{Dir: dir, Log: testLog(t), Settings: map[string]string{"fsync": "off"}})
	require.NoError(t, err)
	t.Cleanup(func() {
		if s, err := pgembed.Start(context.Background(), pgembed.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)}); err == nil {
			_ = s.Destroy(context.Background())
		}
	})
	return s
}

func query[T any](t *testing.T, s *pgembed.Server, sql string) (v T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	require.NoError(t, conn.QueryRow(t.Context(), sql).Scan(&v))
	return v
}

func write(t *testing.T, s *pgembed.Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer")
	require.NoError(t, err)
}

// dies waits for the end of a process that has closed its files: it is there for a moment longer.
func dies(t *testing.T, pid int) {
	t.Helper()
	waittest.Eventually(t, "the process has ended", func() error { return waittest.Unless(!alive(pid), "%d is alive", pid) })
}

func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// Whatever ends a server, the next one has its data.
func TestDataSurvives(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	s := start(t, dir)
	write(t, s)
	require.Equal(t, "UTF8", query[string](t, s, "SHOW server_encoding"))
	require.Empty(t, query[string](t, s, "SHOW listen_addresses"))
	for what, ends := range map[string]func(){
		"stop": func() {
			pid := s.PID()
			require.NotZero(t, pid)
			require.NoError(t, s.Stop(t.Context()))
			dies(t, pid)
		},
		"killed postmaster": func() {
			// A session that is busy when its postmaster dies holds the shared memory for a while.
			busy, err := pgx.Connect(t.Context(), s.DSN())
			require.NoError(t, err)
			go func() { _, _ = busy.Exec(context.Background(), "SELECT pg_sleep(1)") }()
			require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
		},
		"reused PID": func() { stopWithReusedPID(t, s, filepath.Join(dir, "postgres", "data", "postmaster.pid")) },
	} {
		old := s
		ends()
		s = start(t, dir)
		require.Equal(t, 42, query[int](t, s, "SELECT answer FROM kept"), what)
		if what == "killed postmaster" {
			require.NoError(t, old.Stop(t.Context()), "it has ended already")
		}
	}
	require.NoError(t, s.Stop(t.Context()))
}

// stopWithReusedPID leaves the file of a server that was killed, whose PID another process has.
func stopWithReusedPID(t *testing.T, s *pgembed.Server, pidFile string) {
	t.Helper()
	content, err := os.ReadFile(pidFile)
	require.NoError(t, err)
	owner, err := os.Stat(pidFile)
	require.NoError(t, err)
	require.NoError(t, s.Stop(t.Context()))

	// A process of the same user: PostgreSQL refuses to start only for such a process.
	id := owner.Sys().(*syscall.Stat_t)
	bystander := exec.CommandContext(t.Context(), "sleep", "3600")
	bystander.Dir = "/"
	if os.Geteuid() == 0 {
		bystander.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id.Uid, Gid: id.Gid}}
	}
	require.NoError(t, bystander.Start())
	t.Cleanup(func() { _ = bystander.Process.Kill(); _ = bystander.Wait() })
	_, rest, _ := strings.Cut(string(content), "\n")
	require.NoError(t, os.WriteFile(pidFile, []byte(strconv.Itoa(bystander.Process.Pid)+"\n"+rest), 0o600))
	require.NoError(t, os.Chown(pidFile, int(id.Uid), int(id.Gid)))
}

func TestLastUserStopsSharedServer(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	first, second := start(t, dir), start(t, dir)
	pid := first.PID()
	require.Equal(t, pid, second.PID())
	require.Equal(t, first.DSN(), second.DSN())
	alone, err := first.Alone(t.Context())
	require.NoError(t, err)
	require.False(t, alone)

	require.NoError(t, first.Stop(t.Context()))
	require.True(t, alive(pid))
	require.Equal(t, 1, query[int](t, second, "SELECT 1"))
	alone, err = second.Alone(t.Context())
	require.NoError(t, err)
	require.True(t, alone)
	require.NoError(t, second.Stop(t.Context()))
	dies(t, pid)
}

func TestWatchRestartsDeadServer(t *testing.T) {
	t.Parallel()
	s := start(t, testDir(t))
	write(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	watched := make(chan error, 1)
	go func() { watched <- s.Watch(ctx) }()
	dead := s.PID()
	require.NoError(t, syscall.Kill(dead, syscall.SIGKILL))
	waittest.Eventually(t, "another server runs", func() error {
		if pid := s.PID(); pid == 0 || pid == dead {
			return errors.New("none")
		}
		conn, err := pgx.Connect(t.Context(), s.DSN())
		if err != nil {
			return err
		}
		return conn.Close(t.Context())
	})
	_, err := s.Alone(t.Context()) // takes the lock, so the restart has returned
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-watched)
	require.Equal(t, 42, query[int](t, s, "SELECT answer FROM kept"))
	require.NoError(t, s.Stop(t.Context()))
}

// envUser makes this test binary a user of the database in the directory, for tests that kill it.
const envUser = "PGEMBED_TEST_USER_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envUser); dir != "" {
		s, err := pgembed.Start(context.Background(), pgembed.Options{Dir: dir, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString(s.DSN() + "\n")
		select {}
	}
	os.Exit(m.Run())
}

func TestServerOutlivesKilledUser(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	_, err := pgembed.Find(t.Context(), testLog(t), 0)
	if err != nil {
		t.Skip("no PostgreSQL is installed here: ", err)
	}
	user := exec.CommandContext(t.Context(), os.Args[0])
	user.Env = append(os.Environ(), envUser+"="+dir)
	user.Stderr = t.Output()
	out, err := user.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, user.Start())
	dsn, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, user.Process.Kill())
	_ = user.Wait()

	s := start(t, dir)
	require.Equal(t, strings.TrimSpace(dsn), s.DSN())
	require.Equal(t, 1, query[int](t, s, "SELECT 1"))
	pid := s.PID()
	require.NoError(t, s.Stop(t.Context()))
	dies(t, pid) // the killed process no longer counts as a user
}

func TestReplacedDirectoryIsNotStopped(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	old := start(t, dir)
	for _, lock := range []string{"postgres.start.lock", "postgres.users.lock"} {
		require.NoError(t, os.Remove(filepath.Join(dir, lock)))
	}
	_, err := old.Alone(t.Context())
	require.ErrorContains(t, err, "no such file")
	others := start(t, dir)
	_, err = old.Alone(t.Context())
	require.ErrorContains(t, err, "was removed while in use")
	require.ErrorContains(t, old.Destroy(t.Context()), "was removed while in use")
	require.Equal(t, 1, query[int](t, others, "SELECT 1"))
	require.NoError(t, others.Stop(t.Context()))
	require.Zero(t, others.PID(), "the new owner is the only user and stops it")
}

func TestStartAfterKilledInitdb(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	s := start(t, dir)
	require.NoError(t, s.Stop(t.Context()))
	// Such a kill leaves half of a cluster, under a temporary name.
	home := filepath.Join(dir, "postgres")
	require.NoError(t, os.Rename(filepath.Join(home, "data"), filepath.Join(home, "initdb-1")))
	require.NoError(t, os.RemoveAll(filepath.Join(home, "initdb-1", "global")))

	s = start(t, dir)
	require.Equal(t, 1, query[int](t, s, "SELECT 1"))
	require.NoError(t, s.Stop(t.Context()))
	left, err := filepath.Glob(filepath.Join(home, "initdb-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestRootKeepsDataReachable(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root runs postgresql as another user")
	}
	dir := filepath.Join(t.TempDir(), "closed")
	require.NoError(t, os.Mkdir(dir, 0o700))
	s := start(t, dir)
	home, err := filepath.EvalSymlinks(filepath.Join(dir, "postgres"))
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(home, "/var/lib/holdfast/"), home)
	write(t, s)
	require.NoError(t, s.Stop(t.Context()))
	s = start(t, dir)
	require.Equal(t, 42, query[int](t, s, "SELECT answer FROM kept"))
	require.NoError(t, s.Destroy(t.Context()))
	require.NoDirExists(t, filepath.Dir(home))
}

func TestUnusualPaths(t *testing.T) {
	t.Parallel()
	// A socket has a short path, however long that of its directory is.
	for _, name := range []string{`it's [100% my\own #1?`, strings.Repeat("one+two, a=b&c/", 9)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(testDir(t), name)
			s := start(t, dir)
			require.Equal(t, 1, query[int](t, s, "SELECT 1"))
			if psql, err := exec.LookPath("psql"); err == nil {
				out, err := exec.CommandContext(t.Context(), psql, s.DSN(), "-Atc", "SELECT 2").CombinedOutput()
				require.NoError(t, err, string(out))
				out, err = exec.CommandContext(t.Context(), "sh", "-c", s.Psql()+" -Atc 'SELECT 3'").CombinedOutput()
				require.NoError(t, err, string(out))
			}
			require.NoError(t, s.Stop(t.Context()))
			require.NoError(t, start(t, dir).Destroy(t.Context()))
		})
	}
}

func TestPostgreSQLGetsNoSecrets(t *testing.T) {
	t.Setenv("AGENT_TOKEN", "s3cret")
	s := start(t, testDir(t))
	env, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/environ")
	if err != nil {
		t.Skip("the environment of a process cannot be read here: ", err)
	}
	require.Contains(t, string(env), "PATH=")
	require.NotContains(t, string(env), "s3cret")
	require.NoError(t, s.Destroy(t.Context()))
}

func TestLinksOutOfDataDirectoryAreRefused(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	require.NoError(t, start(t, dir).Stop(t.Context()))
	precious := filepath.Join(dir, "precious")
	require.NoError(t, os.WriteFile(precious, []byte("1\nkept\n"), 0o600))
	for _, name := range []string{"data/holdfast.conf", "data/postmaster.pid", "log"} {
		link := filepath.Join(dir, "postgres", name)
		_ = os.Remove(link) // some do not exist
		require.NoError(t, os.Symlink(precious, link))
		_, err := pgembed.Start(t.Context(), pgembed.Options{Dir: dir, Log: testLog(t)})
		require.ErrorContains(t, err, "path escapes from parent")
		kept, err := os.ReadFile(precious)
		require.NoError(t, err)
		require.Equal(t, "1\nkept\n", string(kept))
		require.NoError(t, os.Remove(link))
	}
}

func TestErrorNamesPackagesToInstall(t *testing.T) {
	programs := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(programs, "apt-get"), []byte("#!/bin/sh\n>"+programs+"/ran\n"), 0o700))
	t.Setenv("PATH", programs)
	t.Setenv(pgembed.EnvBin, "")
	missing := httptest.NewServer(http.NotFoundHandler())
	defer missing.Close()
	t.Setenv(pgembed.EnvRepository, missing.URL)
	// No machine has this version, so every step fails.
	_, err := pgembed.Ensure(t.Context(), testLog(t), 99)
	require.ErrorContains(t, err, "apt-get install postgresql")
	require.ErrorContains(t, err, "dnf install postgresql-server")
	require.ErrorContains(t, err, "brew install postgresql")
	require.NoFileExists(t, filepath.Join(programs, "ran"), "it is for a person to change the machine")
}

// Programs of another version do not touch the data.
func TestDataOfAnotherVersion(t *testing.T) {
	t.Parallel()
	dir := testDir(t)
	file := filepath.Join(dir, "postgres", "data", "PG_VERSION")
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
	require.NoError(t, os.WriteFile(file, []byte("99\n"), 0o600))
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(filepath.Join(dir, "postgres"), 65534, 65534)) // the user nobody
	}
	_, err := pgembed.Start(t.Context(), pgembed.Options{Dir: dir, Log: testLog(t)})
	require.ErrorContains(t, err, "/data has data of PostgreSQL 99, and needs that version")
	require.ErrorContains(t, err, "install PostgreSQL 99 (")
	require.FileExists(t, file)
}

func TestWrongDirectoryInEnvironment(t *testing.T) {
	t.Setenv(pgembed.EnvBin, "/nowhere")
	_, err := pgembed.Ensure(t.Context(), testLog(t), 0)
	require.ErrorContains(t, err, "HOLDFAST_PG_BIN")
}

// TestAsOrdinaryUser repeats as the other kind of user the tests about files and processes that this user owns.
func TestAsOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the test runs as an ordinary user already")
	}
	dir := testDir(t)
	copied := filepath.Join(dir, "pgembed.test")
	// Another process copies the program: a process that another test starts at this moment would inherit our open
	// file for a moment, and a file that is open for writing cannot be executed.
	require.NoError(t, exec.CommandContext(t.Context(), "cp", os.Args[0], copied).Run())
	require.NoError(t, os.Chown(dir, 65534, 65534))
	cmd := exec.CommandContext(t.Context(), copied, "-test.v", "-test.shuffle=on",
		"-test.run=^Test(DataSurvives|ServerOutlivesKilledUser|LockFilesArePrivate|ForeignCacheIsNotUsed|LinksOutOfDataDirectoryAreRefused)$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	t.Log(string(out))
	require.NoError(t, err)
}
