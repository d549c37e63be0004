#!/usr/bin/env python3
"""Build the server, and pack it with the programs of PostgreSQL as a wheel for pip and uvx and as packages for npm and npx.

    pack.py OUT [PLATFORM...]
    pack.py --release FOLDER

PLATFORM is linux-amd64, linux-amd64-musl, linux-arm64, linux-arm64-musl, darwin-amd64 or darwin-arm64, or all for each; without one it
is this machine's. There is no archive for linux-arm64-musl: there PostgreSQL comes from the system. Else the wheel, and
the package of npm for the platform, have bin/holdfast and the archive in share/holdfast: the server unpacks it at its first start if
the machine has no PostgreSQL. The package `holdfast` of npm has a launcher for the package of the machine. A commit gives the same
bytes each time.

With --release it reads checksums.txt of a release, and writes holdfast.rb for Homebrew and flake.tar.gz for Nix beside it.
"""

import base64
import gzip
import hashlib
import io
import json
import os
import pathlib
import platform as machine
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# By platform: the tag of the wheel; os, cpu and libc as npm calls them; the archive of PostgreSQL.
PLATFORMS = {
    "linux-amd64": ("manylinux_2_17_x86_64", "linux", "x64", "glibc", "linux-amd64"),
    "linux-amd64-musl": ("musllinux_1_1_x86_64", "linux", "x64", "musl", "linux-amd64-alpine"),
    "linux-arm64": ("manylinux_2_17_aarch64", "linux", "arm64", "glibc", "linux-arm64v8"),
    "linux-arm64-musl": ("musllinux_1_1_aarch64", "linux", "arm64", "musl", ""),
    "darwin-amd64": ("macosx_11_0_x86_64", "darwin", "x64", "", "darwin-amd64"),
    "darwin-arm64": ("macosx_11_0_arm64", "darwin", "arm64", "", "darwin-arm64v8"),
}
SUMMARY = "A durable server for A2A (Agent2Agent) tasks on PostgreSQL"
REPOSITORY = "https://github.com/holdfast-a2a/holdfast"
README = """# Holdfast

`holdfast dev` starts a server for A2A (Agent2Agent) tasks with a PostgreSQL of its own. [Start here](%s/blob/main/docs/start.md).
""" % REPOSITORY


def wheel(version, tag, binary, postgres, out):
    data, info = f"holdfast-{version}.data", f"holdfast-{version}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: holdfast\nVersion: {version}\nSummary: {SUMMARY}\nLicense-Expression: Apache-2.0\n"
        f"License-File: LICENSE\nRequires-Python: >=3.10\nProject-URL: Repository, {REPOSITORY}\n"
        f"Description-Content-Type: text/markdown\n\n{README}"
    )
    files = [
        (f"{data}/scripts/holdfast", binary.read_bytes(), 0o755),
        *((f"{data}/data/{name}", content, mode) for name, content, mode in archive(postgres)),
        (f"{info}/METADATA", metadata.encode(), 0o644),
        (f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: holdfast\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n".encode(), 0o644),
        (f"{info}/licenses/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
    ]
    record = ""
    for name, content, _ in files:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files.append((f"{info}/RECORD", (record + f"{info}/RECORD,,\n").encode(), 0o644))
    path = out / f"holdfast-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, content, mode in files:
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr, entry.create_system = (0o100000 | mode) << 16, 3
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".txz") else zipfile.ZIP_DEFLATED
            packed.writestr(entry, content)
    return path


def package(name, version, members, files, out):
    document = {
        "name": name,
        "version": version,
        "description": SUMMARY,
        "license": "Apache-2.0",
        "repository": {"type": "git", "url": f"git+{REPOSITORY}.git"},
        **members,
    }
    files = [
        ("package/package.json", (json.dumps(document, indent=2) + "\n").encode(), 0o644),
        ("package/LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644),
        ("package/README.md", README.encode(), 0o644),
        *((f"package/{file}", content, mode) for file, content, mode in files),
    ]
    path = out / f"{name}-{version}.tgz"
    path.write_bytes(tarball(files))
    return path


def npm(version, platform, binary, postgres, out):
    _, system, cpu, libc, _ = PLATFORMS[platform]
    name = npm_name(platform)
    members = {"os": [system], "cpu": [cpu], "bin": {name: "bin/holdfast"}, "preferUnplugged": True}
    if libc:
        members["libc"] = [libc]
    files = [("bin/holdfast", binary.read_bytes(), 0o755), *archive(postgres)]
    return package(name, version, members, files, out)


def archive(postgres):
    return [(f"share/holdfast/{postgres.name}", postgres.read_bytes(), 0o644)] if postgres else []


def launcher(version, out):
    members = {
        "bin": {"holdfast": "holdfast.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {npm_name(p): version for p in PLATFORMS},
    }
    return package("holdfast", version, members, [("holdfast.js", (ROOT / "deploy/packaging/holdfast.js").read_bytes(), 0o755)], out)


def npm_name(platform):
    _, system, cpu, libc, _ = PLATFORMS[platform]
    return f"holdfast-{system}-{cpu}" + ("-musl" if libc == "musl" else "")


def release(folder):
    sums = re.findall(r"^(\w{64})  holdfast_(.+)_([a-z]+_[a-z0-9]+)\.tar\.gz$", (folder / "checksums.txt").read_text(), re.M)
    values = {name: digest for digest, _, name in sums} | {"VERSION": sums[0][1]}

    def render(template):
        return re.sub(r"@(\w+)@", lambda m: values[m[1]], (ROOT / "deploy/packaging/templates" / template).read_text()).encode()

    (folder / "holdfast.rb").write_bytes(render("holdfast.rb"))
    (folder / "flake.tar.gz").write_bytes(tarball([("holdfast/flake.nix", render("flake.nix"), 0o644)]))


def tarball(files):
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for file, content, mode in files:
            entry = tarfile.TarInfo(file)
            entry.size, entry.mode, entry.mtime = len(content), mode, 499162500  # npm's own
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), 9, mtime=0)


def here():
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.machine(), machine.machine())
    musl = "-musl" if pathlib.Path("/etc/alpine-release").exists() else ""
    return f"{sys.platform}-{arch}{musl}"


def run(*command, **variables):
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main():
    if sys.argv[1] == "--release":
        return release(pathlib.Path(sys.argv[2]))
    out, platforms = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or [here()]
    if platforms == ["all"]:
        platforms = list(PLATFORMS)
    for platform in platforms:
        if platform not in PLATFORMS:
            sys.exit(f"pack.py: {platform} is none of {', '.join(PLATFORMS)}")
    out.mkdir(parents=True, exist_ok=True)
    version = re.search('VERSION = "(.+)"', (ROOT / "sdk/python/src/holdfast_agent/_version.py").read_text())[1]
    stamps = {"stampedVersion": "v" + version}
    try:
        commit, time = run("git", "log", "-1", "--format=%H %cI").split()
        stamps.update(stampedCommit=commit, stampedTime=time)
    except (OSError, subprocess.CalledProcessError):
        pass  # a copy of the files has no commits
    flags = " ".join(f"-X github.com/holdfast-a2a/holdfast/internal/cli.{name}={value}" for name, value in stamps.items())
    made = [launcher(version, out)]
    with tempfile.TemporaryDirectory() as work:
        for platform in platforms:
            system, arch = platform.split("-")[:2]
            binary = pathlib.Path(work, platform)
            build = ["go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-gcflags=all=-dwarf=false"]  # as BUILD in the Makefile
            build += [f"-ldflags=-s -w {flags}", "-o", binary, "./cmd/server"]
            run(*build, CGO_ENABLED="0", GOOS=system, GOARCH=arch)
            postgres, source = None, PLATFORMS[platform][4]
            if source:
                postgres = pathlib.Path(run("go", "run", "./internal/pg/pgembed/download", source, work))
            made += [wheel(version, PLATFORMS[platform][0], binary, postgres, out), npm(version, platform, binary, postgres, out)]
    for path in made:
        print(f"{path.stat().st_size:>10} {path}")


main()
