#!/bin/sh
# Builds Caddy with mnemogate, and runs it if asked to.
#
#   ./xcaddy.sh [--with module[@version][=path]]...              builds ./caddy
#   ./xcaddy.sh [--with module[@version][=path]]... run [arg]... builds it, then: caddy run [arg]...
#
# With xcaddy on the PATH that does the work; else the same is done with go
# alone. Either way mnemogate comes from this directory and Caddy in the version
# that go.mod pins. CADDY_OUTPUT names another file than ./caddy.
set -eu

module=github.com/mnemogate/mnemogate
here=$(cd "$(dirname "$0")" && pwd)
output=${CADDY_OUTPUT:-$here/caddy}

fail() {
	echo "xcaddy.sh: $*" >&2
	exit 1
}

command -v go >/dev/null || fail "go is not on the PATH; install Go, at least the version that go.mod names"

extra=
while [ $# -gt 0 ]; do
	case $1 in
	--with)
		[ $# -ge 2 ] || fail "--with needs a module, as in --with github.com/caddyserver/transform-encoder"
		extra="$extra $2"
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

version=$(sed -n 's/^## \(v[^ ]*\) .*/\1/p' "$here/CHANGELOG.md" | head -n 1)
caddy=$(cd "$here" && go list -m -f '{{.Version}}' github.com/caddyserver/caddy/v2)

with_xcaddy() {
	set -- "$caddy" --output "$output" --with "$module/caddymodule" --replace "$module=$here"
	for m in $extra; do
		set -- "$@" --with "$m"
	done
	xcaddy build "$@"
}

# What xcaddy generates, but from the versions of our go.sum.
with_go() {
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	sed "s|^module .*|module caddy|" "$here/go.mod" >"$dir/go.mod"
	cp "$here/go.sum" "$dir/go.sum"
	cd "$dir"
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
	CGO_ENABLED=0 go build -mod=mod -trimpath -ldflags '-w -s' -tags nobadger,nomysql,nopgx -o "$output" .
	cd "$here"
	rm -rf "$dir"
	trap - EXIT
}

if command -v xcaddy >/dev/null; then
	with_xcaddy
else
	with_go
fi

if [ "${1:-}" = run ]; then
	exec "$output" "$@"
fi
echo "built $output"
