#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The library exports loong_* and nothing else, and every function that a
# public header declares is there.
#   symbols.sh SOURCE_DIR LIBRARY
set -eu
export LC_ALL=C
exported=$(nm -D --defined-only "$2" | awk '{ print $3 }' | sort -u)
declared=$(ctags --kinds-C=p -I LOONG_API,LOONG_NODISCARD,LOONG_PRINTF+ \
  --output-format=xref -o - "$1"/include/loong/*.h |
  awk '$1 ~ /^loong_/ { print $1 }' | sort -u)
bad=0
# OpenMP keeps the lock of a named critical section in a symbol of its own.
foreign=$(grep -vE '^(loong_|\.gomp_critical_user_loong_)' <<<"$exported" ||
  true)
if [ -n "$foreign" ]; then
  printf 'exported, but not loong_*:\n%s\n' "$foreign"
  bad=1
fi
missing=$(comm -13 <(echo "$exported") <(echo "$declared"))
if [ -n "$missing" ]; then
  printf 'declared, but not exported:\n%s\n' "$missing"
  bad=1
fi
if [ "$(wc -w <<<"$declared")" -lt 50 ]; then
  echo "only $(wc -w <<<"$declared") public functions found: is ctags right?"
  bad=1
fi
exit $bad
