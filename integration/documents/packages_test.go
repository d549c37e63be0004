package documents

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

// TestPackages packs the server, installs it from the files, without a network, as pip and npm do from a registry, and kills it.
func TestPackages(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	out := paste(t, `
unset HOLDFAST_CONFIG
python3 "$ROOT/deploy/packaging/pack.py" "$PWD/dist" >&2
python3 -m venv pip
pip/bin/pip install --quiet --no-index dist/holdfast-*.whl
npm install --prefix npm --silent --offline --no-audit --no-fund --omit=optional ./dist/holdfast-linux-*.tgz ./dist/holdfast-[0-9]*.tgz
try() {
  mkdir "$1.dir"; cd "$1.dir"
  dev() { "$HOLDFAST" dev > log 2>&1 & until "$HOLDFAST" ready > /dev/null 2>&1; do kill -0 $! || { cat log; exit 1; }; sleep 0.2; done; }
  dev
  TASK=$("$HOLDFAST" send hello | sed -n 's/^task *//p')
  KILLED=$(pgrep -P $! holdfast || echo $!) # npm has a launcher
  kill -9 $KILLED; wait $! || true
  dev
  echo "$1: $("$HOLDFAST" tasks get "$TASK" | sed -n 's/^state *//p')"
  kill $!; wait $!
  cd ..
}
HOLDFAST=$PWD/pip/bin/holdfast; try pip
HOLDFAST=$PWD/npm/node_modules/.bin/holdfast; try npm
`, "ROOT="+root)
	require.Contains(t, out, "pip: completed since ")
	require.Contains(t, out, "npm: completed since ")
}

const version = "1.2.3"

// archive returns that of a release for this machine.
func archive(t *testing.T) (name string, content []byte) {
	t.Helper()
	name = fmt.Sprintf("holdfast_%s_%s_%s", version, runtime.GOOS, runtime.GOARCH)
	program := "#!/bin/sh\necho holdfast " + version + "\n"
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	files := tar.NewWriter(z)
	require.NoError(t, files.WriteHeader(&tar.Header{Name: name + "/holdfast", Mode: 0o755, Size: int64(len(program))}))
	_, err := files.Write([]byte(program))
	require.NoError(t, err)
	require.NoError(t, files.Close())
	require.NoError(t, z.Close())
	return name + ".tar.gz", packed.Bytes()
}

// releases serves one release as GitHub does. Its URL goes into the environment of install.sh.
func releases(t *testing.T, checksums string, files map[string][]byte) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, of := strings.CutPrefix(r.URL.Path, "/download/v"+version+"/")
		switch {
		case r.URL.Path == "/latest":
			http.Redirect(w, r, "/tag/v"+version, http.StatusFound)
		case r.URL.Path == "/tag/v"+version:
		case of && name == "checksums.txt":
			_, _ = w.Write([]byte(checksums))
		case of && files[name] != nil:
			_, _ = w.Write(files[name])
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return "HOLDFAST_RELEASES=" + server.URL
}

func TestInstallFromRelease(t *testing.T) {
	t.Parallel()
	name, content := archive(t)
	files := map[string][]byte{name: content}
	right := releases(t, fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name), files)
	wrong := releases(t, strings.Repeat("0", 64)+"  "+name+"\n", files)
	run := func(env []string, program string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	installer := "../../deploy/packaging/install.sh"
	for _, asked := range []string{"", version, "v" + version} {
		dir := filepath.Join(t.TempDir(), "bin")
		out, err := run([]string{right}, installer, asked, dir)
		require.NoError(t, err, out)
		out, err = run(nil, filepath.Join(dir, "holdfast"))
		require.NoError(t, err, out)
		require.Equal(t, "holdfast "+version+"\n", out)
	}
	dir := t.TempDir()
	out, err := run([]string{wrong}, installer, version, dir)
	require.Error(t, err)
	require.Contains(t, out, name+" does not have the checksum of the release")
	out, err = run([]string{right}, installer, "9.9.9", dir)
	require.Error(t, err)
	require.Contains(t, out, "no checksums.txt for v9.9.9")
	require.NoFileExists(t, filepath.Join(dir, "holdfast"))

	// The action, as a runner of GitHub runs it.
	var action struct {
		Runs struct {
			Using string
			Steps []struct {
				Shell, Run string
				Env        map[string]string
			}
		}
	}
	raw, err := os.ReadFile("../../action.yml")
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(raw, &action))
	require.Equal(t, "composite", action.Runs.Using)
	require.Len(t, action.Runs.Steps, 1)
	step := action.Runs.Steps[0]
	require.Equal(t, map[string]string{"VERSION": "${{ inputs.version }}"}, step.Env)
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	path := filepath.Join(dir, "path")
	env := []string{right, "VERSION=", "GITHUB_ACTION_PATH=" + root, "RUNNER_TEMP=" + dir, "GITHUB_PATH=" + path}
	out, err = run(env, step.Shell, "-e", "-c", step.Run)
	require.NoError(t, err, out)
	added, err := os.ReadFile(path)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(strings.TrimSpace(string(added)), "holdfast"))
}

// The formula for Homebrew and the flake for Nix have the checksums of a release, each at its archive.
func TestPackagesOfRelease(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sums := map[string]string{}
	var checksums strings.Builder
	for i, platform := range []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64"} {
		sums[platform] = strings.Repeat(fmt.Sprint(i), 64)
		name := "holdfast_" + version + "_" + platform + ".tar.gz"
		fmt.Fprintf(&checksums, "%s  %s\n%s  %s.sbom.json\n", sums[platform], name, strings.Repeat("f", 64), name)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checksums.txt"), []byte(checksums.String()), 0o600))
	out, err := exec.CommandContext(t.Context(), "python3", "../../deploy/packaging/pack.py", "--release", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)

	formula, err := os.ReadFile(filepath.Join(dir, "holdfast.rb"))
	require.NoError(t, err)
	urls := regexp.MustCompile(`url "\S+/v1\.2\.3/holdfast_1\.2\.3_(\w+)\.tar\.gz"\n +sha256 "(\w+)"`).FindAllStringSubmatch(string(formula), -1)
	require.Len(t, urls, len(sums))
	for _, url := range urls {
		require.Equal(t, sums[url[1]], url[2], url[1])
	}
	if ruby, err := exec.LookPath("ruby"); err == nil {
		out, err := exec.CommandContext(t.Context(), ruby, "-c", filepath.Join(dir, "holdfast.rb")).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}

	flake, err := exec.CommandContext(t.Context(), "tar", "-xzOf", filepath.Join(dir, "flake.tar.gz"), "holdfast/flake.nix").Output()
	require.NoError(t, err)
	for platform, sum := range sums {
		require.Contains(t, string(flake), `name = "`+platform+`"; sha256 = "`+sum+`";`)
	}
	require.Contains(t, string(flake), `/v1.2.3/holdfast_1.2.3_${archive.name}.tar.gz`)
	require.NotContains(t, string(formula)+string(flake), "@")
}
