#!/bin/sh
# limits.sh LIBRARY PROGRAM - programs start and run under `ulimit -v`, and core dumps stay small.
#
# PROGRAM is the limits program of this directory.  LIBRARY is preloaded; where it is empty PROGRAM alone runs, on
# the malloc that is linked into it, or on the system's, to check the test itself.  The loader goes on without a
# library that does not fit, so a run counts only if nothing is on standard error.
set -u
library=$1
program=$(realpath "$2") || exit 1
failures=0
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

# run_limited KIB COMMAND...: true if the command succeeds, silently, in that much address space.
run_limited() (
  ulimit -v "$1" || exit 1
  shift
  LD_PRELOAD=$library "$@" >"$scratch/out" 2>"$scratch/err"
) && ! test -s "$scratch/err"

# The smallest address space, in KiB, in which the command runs, to 256 KiB.
smallest() {
  low=0
  high=1048576
  while test $((high - low)) -gt 256; do
    middle=$(((low + high) / 2))
    if run_limited $middle "$@"; then high=$middle; else low=$middle; fi
  done
  echo $high
}

# demand KIB NAME COMMAND...
demand() {
  limit=$1
  name=$2
  shift 2
  if run_limited "$limit" "$@"; then
    echo "limits.sh: $name: runs in $limit KiB"
  else
    echo "limits.sh: FAILED: $name in $limit KiB: $(cat "$scratch/err")" >&2
    failures=$((failures + 1))
  fi
  # What it takes is of interest; searching that is slow for a program that runs long.
  if test "$limit" -le 16384; then echo "limits.sh: $name: the smallest is $(smallest "$@") KiB"; fi
}

# core_size LIBRARY: the size in KiB of the core dump of a small program; nothing where none can be had.
core_size() (
  cd "$scratch" || exit 1
  rm -f core*
  ulimit -c unlimited 2>/dev/null || exit 0
  LD_PRELOAD=$1 "$program" --scene=crash >/dev/null 2>&1
  for file in core*; do
    test -f "$file" && stat -c '%s' "$file" | awk '{ print int($1 / 1024) }'
  done
)

python=/usr/bin/python3
plain=0
if test -n "$library"; then
  demand 4096 true /bin/true
  if test -x $python; then demand 16384 python3 $python -c pass; fi
  plain=$(core_size '' 2>/dev/null)
else
  demand 4096 'the program itself' "$program" --scene=none
fi
demand 204800 'eight threads' "$program" --scene=eight

loaded=$(core_size "$library" 2>/dev/null)
if test -z "$plain" || test -z "$loaded"; then
  echo "skipped: core dumps: none can be written here"
elif test "$loaded" -le $((plain + 8192)); then
  echo "limits.sh: core dump of $loaded KiB, at most $((plain + 8192))"
else
  echo "limits.sh: FAILED: core dump of $loaded KiB, more than $((plain + 8192))" >&2
  failures=$((failures + 1))
fi
exit $((failures > 0))
