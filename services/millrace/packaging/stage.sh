#!/usr/bin/env bash
# Lays out what is installed beside the program, for the package, the tarball and `make install`.
#
#   stage.sh MILLRACE FOLDER [PREFIX]       PREFIX is /usr; an empty one is FOLDER itself
set -euo pipefail
# Everybody may read what is installed, also if new files of the person who builds it are private.
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../../.." && pwd)
millrace=$1 to=$2 prefix=${3-/usr}
base=$to$prefix

install -D -m 0755 "$millrace" "$base/bin/millrace"
strip --strip-debug "$base/bin/millrace"
# Debian's zsh looks for completions of packages in a folder of their own, and for others in site-functions.
zsh=site-functions
[ "$prefix" != /usr ] || zsh=vendor-completions
for shell in bash zsh fish; do
    case $shell in
    bash) file=bash-completion/completions/millrace ;;
    zsh) file=zsh/$zsh/_millrace ;;
    fish) file=fish/vendor_completions.d/millrace.fish ;;
    esac
    mkdir -p "$(dirname "$base/share/$file")"
    "$millrace" completions "$shell" >"$base/share/$file"
done
"$millrace" man "$base/share/man/man1"
gzip -9nf "$base"/share/man/man1/*.1
mkdir -p "$base/share/doc/millrace"
"$millrace" config example >"$base/share/doc/millrace/millrace.toml.example"
install -m 0644 "$root/LICENSE" "$base/share/doc/millrace/copyright"
