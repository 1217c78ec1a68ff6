#!/bin/sh
# Installs undertone for this user:
#
#     curl -fsSL @BASE_URL@/install.sh | sh
#
# Set UNDERTONE_INSTALL to install to a folder other than ~/.local/bin, and
# UNDERTONE_PROGRAM=undertone-provider to install the provider's program.
set -eu
base=${UNDERTONE_BASE_URL:-@BASE_URL@}
version=@VERSION@
program=${UNDERTONE_PROGRAM:-undertone}
folder=${UNDERTONE_INSTALL:-$HOME/.local/bin}
case $folder in
    /*) ;;
    *) folder=$PWD/$folder ;;
esac

fail() { echo "install: $*" >&2; exit 1; }

case $program in
    undertone | undertone-provider) ;;
    *) fail "UNDERTONE_PROGRAM is $program, but must be undertone or undertone-provider" ;;
esac
case $(uname -s)-$(uname -m) in
    Linux-x86_64) triple=x86_64-unknown-linux-gnu ;;
    Linux-aarch64) triple=aarch64-unknown-linux-gnu ;;
    Darwin-arm64) triple=aarch64-apple-darwin ;;
    Darwin-x86_64) triple=x86_64-apple-darwin ;;
    *) fail "there is no prebuilt program for $(uname -s) on $(uname -m); build it from source" ;;
esac
name=$program-$version-$triple
command -v curl >/dev/null || fail "curl is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
cd "$work"
for file in "$name.tar.gz" SHA256SUMS; do
    curl -fsSLO "$base/$file" || fail "$base/$file could not be downloaded"
done
grep " $name.tar.gz\$" SHA256SUMS > sum || fail "SHA256SUMS has no line for $name.tar.gz"
if command -v sha256sum >/dev/null; then sha256sum -c sum >/dev/null; else shasum -a 256 -c sum >/dev/null; fi \
    || fail "$name.tar.gz does not match its SHA-256 sum"
tar -xzf "$name.tar.gz"
mkdir -p "$folder"
# Replace a running program instead of overwriting it.
cp "$name/$program" "$folder/.$program.new"
mv "$folder/.$program.new" "$folder/$program"
echo "Installed $program $version in $folder"
case :$PATH: in
    *":$folder:"*) ;;
    *) echo "Add $folder to your PATH to use it" ;;
esac
[ "$program" != undertone ] || "$folder/undertone" self check
