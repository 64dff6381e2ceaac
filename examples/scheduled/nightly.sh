#!/bin/sh
# nightly.sh makes the report of a day, once, however many machines start it: each by
#   fencegate run --lock nightly --wait 1h -- nightly.sh
# The machines run it one after the other. All but the first see the record "day" and end. If the first dies, the second
# does the work.
set -eu
today=$(date -u +%F)

# 5 is the exit code of a record that does not exist.
code=0
day=$(fencegate get . day) || code=$?
case $code in
0) [ "$day" != "$today" ] || { echo "the report of $today is there already"; exit 0; } ;;
5) ;;
*) exit "$code" ;;
esac

report="$(uname -n) has made the report of $today"

# Both writes are rejected if this machine was frozen, and another has done the work meanwhile.
fencegate put . report "$report" --sequence 1
fencegate put . day "$today" --sequence 2
