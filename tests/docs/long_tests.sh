#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: long_tests.sh BUILD [COMMIT FILE.xml...]: enters what
# `ctest -L full --output-junit FILE.xml` ran at COMMIT into docs/long-tests.md, a
# row a test, and below them the long tests without a row. Rows of tests that are
# no more are removed.
set -eu
page=$(dirname "$0")/../../docs/long-tests.md
known=$(ctest --test-dir "$1" -N -L full | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p')
commit=${2:-}
shift $(($# < 2 ? $# : 2))
rows() {
    grep '^| [a-z]' "$page"
    [ $# = 0 ] || awk -F'"' -v commit="$commit" '
        /timestamp=/ { day = substr($2, 1, 10) }
        /<testcase / && $8 ~ /run|fail/ {
            printf "| %s | %s | %s | %s | %.0f |\n", $2,
                $8 == "run" ? "passed" : "FAILED", day, commit, $6 }' "$@"
}
page() {
    sed '/^| test /,$d' "$page"
    echo "| test | result | day | commit | s |"
    echo "|---|---|---|---|---|"
    rows "$@" | awk -v known="$known" '
        BEGIN { count = split(known, names, "\n")
            for (i = 1; i <= count; i++) { long[names[i]] = 1 } }
        $2 in long { row[$2] = $0 }
        END { for (name in row) { print row[name] | "sort" }
            close("sort")
            for (i = 1; i <= count; i++) { if (!(names[i] in row)) {
                never = never (never ? ", " : "") names[i] } }
            print "\n" (never ? "Never run: " never "." : "Each was run.") }'
}
page "$@" >"$page.new"
mv "$page.new" "$page"
