#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: deps.sh SOURCE: `make deps` with stand-ins for dpkg-query, apt-get and
# sudo: as an ordinary user it names the packages and stops.
set -eu
source=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
unset MAKEFLAGS MAKELEVEL MFLAGS
chmod 755 "$place"
cp "$source/Makefile" "$place"
chmod 644 "$place/Makefile"
cd "$place"
mkdir bin
for tool in make sh bash env id grep nproc cat echo; do
    ln -s "$(type -P $tool)" bin/$tool
done
stand_in() { # NAME: its lines are read
    { echo '#!/bin/sh' && cat; } >"bin/$1"
    chmod 755 "bin/$1"
}
fail() {
    echo "FAILED: $1; it said:"
    cat out
    exit 1
}
# call CODE USER: make deps
call() {
    local code=0 as=()
    [ "$(id -u)" != 0 ] || [ "$2" = root ] ||
        as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    "${as[@]}" env -i PATH="$place/bin" make -s deps >out 2>&1 || code=$?
    [ "$code" = "$1" ] || fail "$2: exit $code, not $1"
}
installed() { # all but these
    stand_in dpkg-query <<EOF
for name; do :; done
case " $* " in *" \$name "*) exit 1;; esac
echo 'install ok installed'
EOF
}

installed
call 0 nobody
[ ! -s out ] || fail "all there: something was said"

# neither root nor sudo; then sudo that wants a password
installed ninja-build libdnnl-dev
call 2 nobody
grep -qx 'Please install these packages, then try again:' out || fail "no word"
grep -qx '  apt-get install ninja-build libdnnl-dev' out || fail "other packages"
echo 'exit 1' | stand_in sudo
call 2 nobody
grep -qx '  apt-get install ninja-build libdnnl-dev' out || fail "asked sudo"

# a bare machine: the whole list, which docs/install.md has too
echo 'exit 1' | stand_in dpkg-query
call 2 nobody
all=$(sed -n 's/^  apt-get install //p' out)
for package in build-essential cmake ninja-build libopenmpi-dev libdnnl-dev \
    libyaml-dev libjansson-dev libhdf5-dev libcmocka-dev procps; do
    case " $all " in *" $package "*) ;; *) fail "no $package" ;; esac
done

# make demo says the same of its text
rm bin/sudo
installed
code=0
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
"${as[@]}" env -i PATH="$place/bin" make -s -o build corpus CORPUS=/nowhere \
    >out 2>&1 || code=$?
[ $code = 2 ] || fail "no text: exit $code, not 2"
grep -qx 'Please install: apt-get install python3.11-doc' out || fail "no text"

# sudo without a password, and root: what is missing is installed
installed cmake zlib1g-dev
touch log
chmod 666 log
echo "[ \"\$1\" = -n ] || exec \"\$@\"" | stand_in sudo
echo "echo \"\$@\" >>$place/log" | stand_in apt-get
for user in nobody root; do
    [ "$(id -u)" = 0 ] || [ $user = nobody ] || continue
    : >log
    call 0 $user
    grep -qx 'update -qq' log || fail "$user: no update"
    grep -qx 'install .* cmake zlib1g-dev' log || fail "$user: no install"
done
# an installation that fails is told
echo 'echo "E: Unable to locate package"; exit 100' | stand_in apt-get
call 2 nobody
grep -q 'Unable to locate package' out || fail "a failure of apt-get is silent"
echo "deps: named, installed, and failures told"
