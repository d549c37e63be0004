package secrets_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-a2a/holdfast/internal/secrets"
	"github.com/holdfast-a2a/holdfast/internal/test/waittest"
)

func script(text string) *secrets.Source { return secrets.Command("/bin/sh", "-c", text) }

// A value loses one line break at its end, and nothing else.
func TestValueLosesOneLineBreak(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	for written, want := range map[string]string{"s3cret": "s3cret", "s3cret\n": "s3cret", "s3cret\r\n": "s3cret", " a b \n\n": " a b \n"} {
		require.NoError(t, os.WriteFile(file, []byte(written), 0o600))
		for _, s := range []*secrets.Source{secrets.File(file), secrets.Command("cat", file)} {
			got, err := s.Read(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	}
	require.Nil(t, secrets.Text(""))
	got, err := secrets.Text("x\n").Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "x\n", got, "a text is the value itself")
	got, err = (*secrets.Source)(nil).Read(t.Context())
	require.NoError(t, err)
	require.Empty(t, got)
}

// Errors name the file or the program, and show neither the value nor the arguments.
func TestErrorsShowNoSecret(t *testing.T) {
	t.Parallel()
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))
	for want, s := range map[string]*secrets.Source{
		"/nowhere/file":     secrets.File("/nowhere/file"),
		empty + " is empty": secrets.File(empty),
		"/nowhere/program":  secrets.Command("/nowhere/program", "s3cret"),
		"the command /bin/sh failed (exit status 3): access denied": script("echo s3cret; echo access  denied >&2; exit 3"),
		"the output of /bin/sh is empty":                            script("exit 0"),
		"wrote more than 1048576 bytes":                             script("yes s3cret | head -c 1048577"),
	} {
		got, err := s.Read(t.Context())
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), "s3cret")
		require.NotContains(t, s.String(), "s3cret")
		require.Empty(t, got)
	}
	require.NotContains(t, secrets.Text("s3cret").String(), "s3cret")
}

// A command that hangs ends with the context, with its children: Read waits for all that could still write to its pipe.
func TestCommandEndsWithItsContext(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "begun")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := script("sleep 100000 & echo $! >" + file + "; sleep 100000").Read(ctx)
		ended <- err
	}()
	var child int
	waittest.Eventually(t, "the command runs", func() error {
		written, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		child, err = strconv.Atoi(strings.TrimSpace(string(written)))
		return err
	})
	cancel()
	require.Error(t, waittest.Within(t, "the end of the command", ended))
	waittest.Eventually(t, "its child has ended", func() error {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child))
		return waittest.Unless(err != nil || strings.Contains(string(state), ") Z "), "it runs: %s", state)
	})
}

// Read asks again each time. Recent asks a command once a minute, and again after a failure; a file is cheap.
func TestReadAsksAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "count")
	counter := script(`echo x >>` + file + `; test $(wc -l <` + file + `) -gt 1 && wc -l <` + file)
	_, err := counter.Recent(t.Context())
	require.Error(t, err, "the first run fails")
	read := func(f func(context.Context) (string, error)) string {
		got, err := f(t.Context())
		require.NoError(t, err)
		return strings.TrimSpace(got)
	}
	require.Equal(t, "2", read(counter.Recent))
	require.Equal(t, "2", read(counter.Recent))
	require.Equal(t, "3", read(counter.Read))
	require.Equal(t, "4", read(counter.Read))
	require.NoError(t, os.WriteFile(file, []byte("a"), 0o600))
	require.Equal(t, "a", read(secrets.File(file).Recent))
	require.NoError(t, os.WriteFile(file, []byte("b"), 0o600))
	replaced := secrets.File(file)
	require.Empty(t, replaced.Used())
	require.Equal(t, "b", read(replaced.Recent))
	require.NoError(t, os.WriteFile(file, []byte("c"), 0o600))
	require.Equal(t, "c", read(replaced.Recent))
	require.Equal(t, "c", read(replaced.Recent))
	require.Equal(t, []string{"c", "b"}, replaced.Used(), "an answer may repeat the value of its request")
	require.Equal(t, []string{"x"}, secrets.Text("x").Used())
}

func TestSourceAsJSON(t *testing.T) {
	t.Parallel()
	for _, s := range []*secrets.Source{secrets.Text("a"), secrets.File("/dev/null"), secrets.Command("echo", "b c")} {
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		var again secrets.Source
		require.NoError(t, json.Unmarshal(raw, &again))
		require.Equal(t, s.String(), again.String())
	}
}
