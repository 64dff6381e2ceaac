#!/bin/sh
# nightly.sh makes the report of a night, once, however many machines start it.
# The machines work one after the other. All but the first find the night's record, and end. If the first dies, the
# second does the work.
set -eu

# Before the wait for the lock: the night that this start is for, in the machine's zone, which is also cron's. A night
# begins at 01:00, an hour before the schedule, by the clock on the wall.
if [ $# = 0 ]; then
	night=$(date -u -d "$(date '+%F %T') 1 hour ago" +%F)
	exec fencegate run --lock nightly --wait 1h -- "$0" "$night"
fi
night=$1

# 5 is the exit code of a record that does not exist.
code=0
fencegate get . "$night" >/dev/null || code=$?
case $code in
0) echo "the report of $night is there already"; exit 0 ;;
5) ;;
*) exit "$code" ;;
esac

# Rejected if this machine was frozen, and another has done the work meanwhile.
fencegate put . "$night" "$(uname -n) has made the report of $night" --sequence 1
