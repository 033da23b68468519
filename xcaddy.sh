#!/bin/sh
# Builds Caddy with mnemogate, and runs it if asked to.
#
#   ./xcaddy.sh [--with module[@version][=path]]...              builds ./caddy
#   ./xcaddy.sh [--with module[@version][=path]]... run [arg]... builds it, then: caddy run [arg]...
#   ./xcaddy.sh [--with module[@version][=path]]... --verify FILE  builds it elsewhere, and compares it with FILE
#   ./xcaddy.sh [--with module[@version][=path]]... --source DIR   only writes the module to build into DIR, which must be empty or missing
#
# The source is this directory, and the version of Caddy is the one in go.mod. If
# xcaddy is on the PATH, it writes the module to build. If it is missing or fails,
# and for --verify and --source, the script does the same with Go alone and the
# versions in go.sum. CADDY_OUTPUT sets another file than ./caddy. Such builds of the
# same commit are identical on all machines: to verify a release, check out its tag
# and set GOOS and GOARCH. What else you have told Go to build with, as in GOAMD64,
# GOEXPERIMENT or -tags in GOFLAGS, changes the program.
set -eu
export GOWORK=off

module=github.com/mnemogate/mnemogate
here=$(cd "$(dirname "$0")" && pwd)
output=${CADDY_OUTPUT:-$here/caddy}

fail() {
	echo "xcaddy.sh: $*" >&2
	exit 1
}

command -v go >/dev/null || fail "go is not on the PATH; install Go 1.21 or later, which fetches the version that go.mod names"

extra=
verify=
source=
while [ $# -gt 0 ]; do
	case $1 in
	--with)
		[ $# -ge 2 ] || fail "--with needs a module, as in --with github.com/caddyserver/transform-encoder"
		case $2 in
		*=.*) with=${2%%=*}=$PWD/${2#*=} ;;
		*) with=$2 ;;
		esac
		case $with in
		*[[:space:]]*) fail "--with: there is a space in $with; move the module to a path without one" ;;
		esac
		extra="$extra $with"
		shift 2
		;;
	--verify | --source)
		[ $# -eq 2 ] || fail "$1 needs one path, as its last argument"
		case $2 in /*) path=$2 ;; *) path=$PWD/$2 ;; esac
		if [ "$1" = --source ]; then
			[ ! -e "$path" ] || { [ -d "$path" ] && [ -z "$(ls -A "$path")" ]; } || fail "--source: $2 is not an empty directory; remove it, or name another"
			source=$path
		else
			[ -r "$path" ] || fail "--verify: cannot read $2"
			verify=$path
		fi
		shift 2
		;;
	run) break ;;
	-h | --help)
		sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p;}' "$0"
		exit 0
		;;
	*) fail "unknown argument $1; see ./xcaddy.sh --help" ;;
	esac
done

case $output in /*) ;; *) output=$PWD/$output ;; esac
version=$(sed -n 's/^const version = "\(.*\)"$/\1/p' "$here/caddymodule/app/version.go")
caddy=$(cd "$here" && go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)
revision=
case $version in
*-dev) [ ! -e "$here"/.git ] || revision=$(git -C "$here" describe --always --exclude='*' --abbrev=12 --dirty || true) ;;
esac

from_xcaddy() {
	set -- "$caddy" --with "$module/caddymodule" --replace "$module=$here"
	for m in $extra; do
		set -- "$@" --with "$m"
	done
	mkdir xcaddy
	(cd xcaddy && TMPDIR=$PWD XCADDY_SKIP_BUILD=1 xcaddy build "$@") && mv xcaddy/*/main.go xcaddy/*/go.mod xcaddy/*/go.sum .
}

from_go() {
	sed "s|^module .*|module caddy|" "$here/go.mod" >go.mod
	cp "$here/go.sum" go.sum
	go mod edit -require "$module@$version" -replace "$module=$here"
	{
		echo 'package main'
		echo 'import ('
		echo '	_ "time/tzdata"'
		echo '	caddycmd "github.com/caddyserver/caddy/v2/cmd"'
		echo '	_ "github.com/caddyserver/caddy/v2/modules/standard"'
		echo "	_ \"$module/caddymodule\""
		for m in $extra; do
			package=${m%%=*}
			echo "	_ \"${package%%@*}\""
		done
		echo ')'
		echo 'func main() { caddycmd.Main() }'
	} >main.go
	for m in $extra; do
		package=${m%%=*}
		case $m in
		*=*) go mod edit -replace "${package%%@*}=${m#*=}" ;;
		*) go get "$package" ;;
		esac
	done
}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
if [ -n "$verify$source" ] || ! command -v xcaddy >/dev/null; then
	from_go
elif ! from_xcaddy; then
	echo "xcaddy.sh: xcaddy failed; building with go alone" >&2
	from_go
fi
# The program contains this path, so it must not depend on the source directory.
ln -s "$here" mnemogate
go mod edit -require "$module@$version" -replace "$module=./mnemogate"
if [ -n "$source" ]; then
	mkdir -p "$source"
	cp -R . "$source"
	exit
fi
[ -z "$verify" ] || output=$dir/verify
CGO_ENABLED=0 go build -mod=mod -buildvcs=false -trimpath -tags nobadger,nomysql,nopgx \
	-ldflags "-w -s -X $module/caddymodule/app.revision=$revision" -o "$output" .
if [ -n "$verify" ]; then
	cmp "$verify" "$output" || fail "$verify is not a build of this source"
	echo "$verify is a build of this source"
	exit
fi
cd "$here"
rm -rf "$dir"
trap - EXIT

if [ "${1:-}" = run ]; then
	exec "$output" "$@"
fi
echo "built $output"
