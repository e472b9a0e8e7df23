#!/bin/bash
# See to it that a Docker daemon answers: install and start Debian's where none does. Prints the id of the process
# that it started, if any. Exits 1 with the daemon's last words where it cannot run.
set -euo pipefail
answers() { timeout 20 docker info >/dev/null 2>&1; }
! answers || exit 0

if ! { command -v dockerd && command -v debootstrap && { command -v docker-compose || docker compose version; }; } >/dev/null 2>&1; then
  apt-get update -q >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
    docker.io docker-compose debootstrap iptables >/dev/null
fi
log=$(mktemp)
setsid dockerd >"$log" 2>&1 </dev/null &
daemon=$!
for _ in $(seq 60); do
  if answers; then
    echo "$daemon"
    exit 0
  fi
  kill -0 "$daemon" 2>/dev/null || break
  sleep 1
done
tail -n 20 "$log" >&2
kill "$daemon" 2>/dev/null || true
exit 1
