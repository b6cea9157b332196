#!/bin/sh
# Guarded steps from a shell: ./hold.sh NAME STEPS
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/commands"

leasehold hold "$1" <"$folder/commands" >"$folder/events" &
hold=$!
exec 3>"$folder/commands" # the lease is released when this is closed
until grep -q '"event":"held"' "$folder/events"; do
  kill -0 "$hold" 2>/dev/null || wait "$hold" # exits as it did
  sleep 0.1
done

# Prints a number of the last event.
last() { tail -n 1 "$folder/events" | sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p"; }

# Fails unless the lease is held now, by the last deadline and the boot clock.
held() {
  read -r uptime _ </proc/uptime
  now=${uptime%.*}${uptime#*.}9 # in ms, with the most that the file leaves out
  deadline=$(last deadline_ms)
  [ "$now" -lt "${deadline:-0}" ] && [ $((deadline - now)) -le "$(last ttl_ms)" ]
}

# What must not be done without the lease. Your storage refuses a token lower than it has seen.
step() { echo "step $1 token $2 at $now" && sleep 0.1; }

token=$(last token)
for number in $(seq "$2"); do
  held || { echo "stopped: the lease is not held" >&2; exit 1; }
  step "$number" "$token" 3>&-
done
exec 3>&-
wait "$hold"
