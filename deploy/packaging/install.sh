#!/bin/sh
# Installs holdfast from a release for Linux or macOS: install.sh [VERSION [DIRECTORY]]. By default it is the newest release, which
# goes into /usr/local/bin. docs/releases.md says how to verify the checksums, too.
set -eu
releases=${HOLDFAST_RELEASES:-https://github.com/holdfast-a2a/holdfast/releases}
version=${1:-} directory=${2:-/usr/local/bin}

fail() {
	echo "install.sh: $*" >&2
	exit 1
}

case $(uname -s) in
Linux) os=linux ;;
Darwin) os=darwin ;;
*) fail "there is no release for $(uname -s)" ;;
esac
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "there is no release for $(uname -m)" ;;
esac
if [ -z "$version" ]; then
	newest=$(curl -fsSLo /dev/null -w '%{url_effective}' "$releases/latest") || fail "$releases/latest does not answer; name a version"
	version=${newest##*/}
fi
version=${version#v}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=holdfast_${version}_${os}_$arch
for file in checksums.txt "$name.tar.gz"; do
	curl -fsSLo "$work/$file" "$releases/download/v$version/$file" || fail "$releases has no $file for v$version"
done
if command -v sha256sum >/dev/null; then sum=$(sha256sum <"$work/$name.tar.gz"); else sum=$(shasum -a 256 <"$work/$name.tar.gz"); fi
grep -qx "${sum%% *}  $name.tar.gz" "$work/checksums.txt" || fail "$name.tar.gz does not have the checksum of the release"
tar -xzf "$work/$name.tar.gz" -C "$work"
mkdir -p "$directory"
install -m 755 "$work/$name/holdfast" "$directory/holdfast" || fail "cannot write to $directory; name another directory"
echo "holdfast $version is in $directory"
