#!/usr/bin/env bash
# Makes sure that bubblewrap is there and that a Docker daemon answers. As root on Debian it installs and starts
# them; elsewhere it prints what to run. Fails only where neither sandbox can work.
set -euo pipefail

log=/var/log/mixharness-dockerd.log

say() { printf '%s\n' "$*" >&2; }
answers() { python -c 'import docker; docker.from_env(timeout=10).ping()' 2>/dev/null; }
debian_root() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

install_missing() {
  local packages=()
  command -v bwrap >/dev/null || packages+=(bubblewrap)
  answers || command -v dockerd >/dev/null || packages+=(docker.io)
  [ "${#packages[@]}" = 0 ] && return
  if ! debian_root; then
    say "Missing: ${packages[*]}. Fix: sudo apt-get install --no-install-recommends ${packages[*]}"
    return
  fi
  say "Installing ${packages[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
}

# After a kill -9 the pid file stays and blocks the next start. Only the process behind it tells whether it is stale.
drop_stale() { # PIDFILE PROGRAM
  local program
  [ -f "$1" ] || return 0
  program=$(readlink "/proc/$(cat "$1")/exe" || true)
  [ "$(basename "${program% (deleted)}")" = "$2" ] || rm -f "$1"
}

start_daemon() {
  if [ "$(id -u)" != 0 ]; then
    say "No Docker daemon answers $(id -un). Fix: sudo systemctl start docker; sudo usermod -aG docker $(id -un), then log in again"
    return
  fi
  if [ -d /run/systemd/system ] && systemctl start docker; then return; fi
  drop_stale /var/run/docker.pid dockerd
  drop_stale /var/run/docker/containerd/containerd.pid containerd
  # Sandboxes have no network, so the daemon needs neither a bridge nor rules of its own.
  setsid nohup dockerd --iptables=false --bridge=none </dev/null >"$log" 2>&1 &
}

wait_for_daemon() {
  for _ in $(seq 60); do
    answers && return
    sleep 0.5
  done
  say "The Docker daemon did not answer within 30 s; the end of $log:"
  tail -n 20 "$log" >&2 || true
  return 1
}

install_missing
if ! answers && command -v dockerd >/dev/null; then
  start_daemon
  [ "$(id -u)" != 0 ] || wait_for_daemon
fi
answers || command -v bwrap >/dev/null || { say "No sandbox works here: neither Docker nor bubblewrap."; exit 2; }
