#!/bin/bash
# Install what the lab, the demo and the tests need from Debian's packages.
# Nothing is done where nothing is missing. Without root or sudo it says what to install, and ends with 1.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"

declare -A package_of=(
  [slurmctld]=slurmctld [slurmd]=slurmd [sinfo]=slurm-client [munged]=munge
  [slurmdbd]=slurmdbd [mariadbd]=mariadb-server [git]=git [make]=make
)
missing=()
for program in "${!package_of[@]}"; do
  command -v "$program" >/dev/null || missing+=("${package_of[$program]}")
done
python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
[ "${#missing[@]}" -gt 0 ] || exit 0
mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort)

install="apt-get update && apt-get install --no-install-recommends ${missing[*]}"
if ! command -v apt-get >/dev/null; then
  echo "Missing here, by the names of Debian's packages: ${missing[*]}" >&2
  echo "Install them with this system's package manager, and start again." >&2
  exit 1
elif [ "$(id -u)" -eq 0 ]; then
  become=()
elif sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null && sudo -v; }; then
  become=(sudo)
else
  echo "Missing here: ${missing[*]}" >&2
  echo "Have them installed by root, and start again:" >&2
  echo "  $install" >&2
  exit 1
fi

echo "installing ${missing[*]}"
# The lab starts daemons of its own: the packages' services stay off while they are installed.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${become[@]}" tee "$policy" >/dev/null
  trap '"${become[@]}" rm -f "$policy"' EXIT
  "${become[@]}" chmod +x "$policy"
fi
"${become[@]}" apt-get update -q >/dev/null
"${become[@]}" env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes apt-get install -q -y --no-install-recommends "${missing[@]}" >/dev/null
