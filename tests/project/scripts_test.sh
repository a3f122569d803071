#!/usr/bin/env bash
# scripts_test.sh SOURCE: the commands around the build behave: help names every target, a wrong MPI is refused,
# missing packages without rights print the exact command and status 2, systems without apt-get go on, a command
# that runs no tests needs none of their packages, and an empty choice of tests is a failure. Nothing is installed
# or built: dpkg-query, id, sudo, apt-get, cmake and ninja are stand-ins.
set -euo pipefail
source_dir=$1
unset MAKEFLAGS MFLAGS MAKELEVEL # of a make that runs this test
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
expect() { # what, pattern, text
    if ! grep -qE -- "$2" <<<"$3"; then
        printf 'FAILED: %s: no "%s" in:\n%s\n' "$1" "$2" "$3"
        failures=$((failures + 1))
    fi
}
expect_status() { # what, wanted, got
    if [ "$2" != "$3" ]; then
        echo "FAILED: $1: status $3 instead of $2"
        failures=$((failures + 1))
    fi
}

# make alone explains, and names every target there is.
help=$(make --no-print-directory -C "$source_dir" </dev/null)
targets=$(sed -n -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' -e 's/^\.PHONY: help //p' "$source_dir/Makefile")
for target in $targets; do
    expect "make help" "(make |, )$target( |,|$)" "$help"
done
status=0
text=$(make --no-print-directory -C "$source_dir" test MPI=lam 2>&1 </dev/null) || status=$?
expect_status "make MPI=lam" 2 "$status"
expect "make MPI=lam" "MPI=lam is not known" "$text"

# Stand-ins: libisal-dev is missing, everything else is there, and nobody is root.
stand_in() {
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
mkdir -p "$work/bin"
stand_in dpkg-query 'for package; do :; done; case $package in libisal-dev) exit 1;; *) echo installed;; esac'
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
stand_in apt-get 'echo "apt-get must not run here: $*" >&2; exit 99'
status=0
text=$(PATH="$work/bin:$PATH" MPI=mpich "$source_dir/scripts/setup" build test 2>&1 </dev/null) || status=$?
expect_status "setup without rights" 2 "$status"
expect "setup without rights" '^  libisal-dev +CRC32C' "$text"
expect "setup without rights" \
    '^  sudo apt-get update && sudo apt-get install -y --no-install-recommends libisal-dev$' "$text"

# Nothing missing: no word.
stand_in dpkg-query 'echo installed'
status=0
text=$(PATH="$work/bin:$PATH" MPI=openmpi "$source_dir/scripts/setup" build test demo 2>&1 </dev/null) || status=$?
expect_status "setup with everything there" 0 "$status"
[ -z "$text" ] || expect "setup with everything there" '^$' "$text"

# A purpose that is misspelt installs nothing, and says so, and so does no purpose at all.
for purposes in "build pyhton" "" --help; do
    status=0
    text=$(PATH="$work/bin:$PATH" MPI=none "$source_dir/scripts/setup" $purposes 2>&1 </dev/null) || status=$?
    expect_status "scripts/setup $purposes" 2 "$status"
    expect "scripts/setup $purposes" '"(pyhton|--help)" is not known; usage: .* build .* python ' "$text"
done

# With sudo: installs exactly what is missing; a failed first try refreshes the lists and tries once more.
# policy-rc.d is neither placed nor removed here: the stand-in sudo only logs what it was asked to do.
stand_in dpkg-query 'for package; do :; done; case $package in fio) exit 1;; *) echo installed;; esac'
stand_in sudo 'shift; [ "$1" = true ] && exit 0
[ "$1" = tee ] && cat >/dev/null
echo "$*" >>"$SUDO_LOG"
case "$*" in
    *"install --no-install-recommends"*) [ -e "$SUDO_LOG.again" ] && exit 0; : >"$SUDO_LOG.again"; exit 100;;
esac'
status=0
text=$(PATH="$work/bin:$PATH" SUDO_LOG="$work/log" MPI=none "$source_dir/scripts/setup" build bench 2>&1 \
    </dev/null) || status=$?
expect_status "setup with sudo" 0 "$status"
expect "setup with sudo" 'fio +the rate of the disk' "$text"
expect "setup with sudo" 'installed 1 packages' "$text"
log=$(cat "$work/log")
expect "setup with sudo" 'apt-get .*install --no-install-recommends fio$' "$log"
expect "setup with sudo" 'apt-get .*update$' "$log"
expect_status "setup with sudo, tries" 1 "$(grep -c ' update$' <<<"$log")"

# Histories in virtual time: how far they are without a terminal, the sum, and what fails.
mkdir -p "$work/build/tests/simulation"
cat >"$work/build/tests/simulation/histories_test" <<'END'
#!/bin/sh
[ "$TAILRACE_SEEDS" = 80 ] && [ -n "$TAILRACE_PROGRESS" ] || exit 3
echo "progress 5"
sleep 1.5
case "$1" in *"/$FAILS") echo "replay with TAILRACE_SEED=7"; exit 1;; esac
echo "seeds 1 to 10"
echo "10 histories, 200 steps; ranks that restored an epoch: 3"
END
chmod +x "$work/build/tests/simulation/histories_test"
status=0
text=$(BUILD="$work/build" JOBS=8 SEEDS=80 EVERY_S=1 FAILS=none "$source_dir/scripts/simulate" 2>&1) || status=$?
expect_status "simulate" 0 "$status"
expect "simulate" '^40 of 80 histories after 0 min, about 1 min left$' "$text"
expect "simulate" '^seeds 1 to 10 10 histories, 200 steps; ranks that restored an epoch: 3$' "$text"
expect "simulate" '^in all 80 histories, 1600 steps, ranks that restored an epoch: 24$' "$text"
status=0
text=$(BUILD="$work/build" JOBS=8 SEEDS=80 FAILS=4 "$source_dir/scripts/simulate" 2>&1) || status=$?
expect_status "simulate with a failure" 1 "$status"
expect "simulate with a failure" '^replay with TAILRACE_SEED=7$' "$text"
status=0
text=$(SEEDS=many "$source_dir/scripts/simulate" 2>&1) || status=$?
expect_status "simulate SEEDS=many" 2 "$status"

# Environments of Python: while pip is at work on one, another is made; who wants the same waits, and pip runs once.
# One that nobody has asked for goes, unless somebody has its lock. The interpreter and its pip are stand-ins.
environments=$work/cache/tailrace/python
stand_in python '[ "$1" = --version ] && exec echo Python 3
mkdir -p "$3/bin"
name=${3##*/}
cat >"$3/bin/pip" <<END
#!/bin/sh
echo "${name%%-*}" >>"$CALLS"
while [ "${name%%-*}" = base ] && [ -e "$CALLS.hold" ]; do sleep 0.1; done
END
chmod +x "$3/bin/pip"'
python_env() {
    PYTHON=$work/bin/python CALLS=$work/calls XDG_CACHE_HOME=$work/cache \
        timeout 60 "$source_dir/scripts/python_env" "$@" 2>>"$work/python_env" </dev/null
}
mkdir -p "$environments/old-1" "$environments/old-2"
touch -d '70 days ago' "$environments/old-1/complete" "$environments/old-2/complete"
exec 7>"$environments/old-2.lock"
flock 7
: >"$work/calls"
: >"$work/calls.hold"
python_env base >"$work/base" 7>&- &
first=$!
for _ in $(seq 200); do [ -s "$work/calls" ] || sleep 0.1; done
python_env base >"$work/base again" 7>&- &
second=$!
status=0
text=$(python_env docs 7>&-) || status=$?
expect_status "python_env beside another that is made" 0 "$status"
expect "python_env beside another that is made" "^$environments/docs-[0-9a-f]{12}\$" "$text"
rm "$work/calls.hold"
wait "$first" "$second"
expect_status "python_env, calls of pip" "base docs" "$(xargs <"$work/calls")"
expect_status "python_env, the same environment" "$(cat "$work/base")" "$(cat "$work/base again")"
[ ! -e "$environments/old-1" ] || expect "python_env" "no old environment" "$(ls "$environments")"
[ -e "$environments/old-2" ] || expect "python_env" "the old environment that is locked" "$(ls "$environments")"
exec 7>&-

# No apt-get: says what is needed and goes on.
mkdir -p "$work/plain"
for tool in bash dirname sed head cat; do ln -s "$(command -v "$tool")" "$work/plain/$tool"; done
status=0
text=$(PATH="$work/plain" MPI=openmpi "$source_dir/scripts/setup" build 2>&1 </dev/null) || status=$?
expect_status "setup without apt-get" 0 "$status"
expect "setup without apt-get" 'libtomlplusplus-dev .*libopenmpi-dev' "$text"

# Wheels are made with an interpreter that is here, the oldest first. Without one nothing begins.
status=0
text=$(PYTHONS="python3.99 python3.98 none" "$source_dir/scripts/make_wheels" 2>&1 </dev/null) || status=$?
expect_status "make_wheels without an interpreter" 1 "$status"
expect "make_wheels without an interpreter" 'there is no none here: nothing is made or tested with it$' "$text"
expect "make_wheels without an interpreter" 'none .* is here to make .*: none python3\.98 python3\.99$' "$text"

# Commands that do not install the tests' packages do not build the tests: on a fresh machine there is no GoogleTest.
for target in $targets; do
    commands=$(make -n --no-print-directory -C "$source_dir" "$target" </dev/null)
    if grep -qx 'scripts/build' <<<"$commands" && ! grep -qE '^scripts/setup( .*)? test( |$)' <<<"$commands"; then
        echo "FAILED: make $target builds the tests without installing what they need"
        failures=$((failures + 1))
    fi
done
stand_in ninja ''
stand_in cmake 'while [ "$1" != -B ]; do shift; done
echo "$*" >"$2/arguments" && : >"$2/build.ninja"'
with_tests() { # expected (ON, OFF), arguments of scripts/build
    PATH="$work/bin:$PATH" BUILD="$work/build" "$source_dir/scripts/build" "${@:2}" >/dev/null </dev/null
    expect "scripts/build ${*:2}" "-DTAILRACE_TESTS=$1\$" "$(cat "$work/build/arguments")"
}
with_tests OFF --without-tests
with_tests ON
with_tests ON --without-tests # a developer's build keeps them
rm "$work/bin/cmake" "$work/bin/ninja"

# Choosing no test at all must not look like success.
mkdir -p "$work/empty tests"
printf 'cmake_minimum_required(VERSION 3.22)\nproject(e NONE)\nenable_testing()\nadd_test(NAME one COMMAND true)\n' \
    >"$work/empty tests/CMakeLists.txt"
cmake -S "$work/empty tests" -B "$work/empty tests/b" >/dev/null
status=0
"$source_dir/scripts/run_ctest" "$work/empty tests/b" -R nothing-has-this-name >/dev/null 2>&1 </dev/null || status=$?
[ "$status" -ne 0 ] || expect_status "run_ctest without tests" 8 0
"$source_dir/scripts/run_ctest" "$work/empty tests/b" >/dev/null </dev/null

[ "$failures" -eq 0 ] && echo "the scripts behave"
