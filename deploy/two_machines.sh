#!/bin/sh
# A Ray cluster of two machines, or of more, by hand. On all of them, with the same version of Python and of gigaslide:
#
#   two_machines.sh token              once, on the first; copy the file that it names to the others
#   two_machines.sh lead               on the first, which leads; it says the command for the others
#   two_machines.sh join FIRST:6379    on every other, also later
#   two_machines.sh train FIRST:6379   on the first, in the project's folder
#   two_machines.sh stop               on each, in the end
#
# More arguments go to `ray start`: --num-cpus=16, --object-store-memory=8000000000, --node-ip-address=10.0.0.1 on a
# machine that has several addresses, --block to stay in the foreground; those after `train` to `gigaslide train`.
set -eu

export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH="${RAY_AUTH_TOKEN_PATH:-$HOME/ray_token}"
export RAY_USAGE_STATS_ENABLED=0
PORT="${PORT:-6379}"

what="${1:-}"
[ $# -eq 0 ] || shift

case "$what" in
  token | lead | join | train | stop) ;;
  *)
    sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
if [ "$what" != token ] && [ ! -s "$RAY_AUTH_TOKEN_PATH" ]; then
  echo "two_machines.sh: there is no token in $RAY_AUTH_TOKEN_PATH: make it on the first machine ($0 token), and copy it here" >&2
  exit 1
fi

case "$what" in
  token)
    if [ -s "$RAY_AUTH_TOKEN_PATH" ]; then
      echo "There is a token in $RAY_AUTH_TOKEN_PATH already; copy that file to the other machines."
      exit
    fi
    umask 077 # nobody else may read it
    python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH"
    echo "Copy $RAY_AUTH_TOKEN_PATH to the other machines, readable by you alone."
    ;;
  lead) exec ray start --head --port="$PORT" --include-dashboard=false "$@" ;;
  join | train)
    address="${1:?has to be the address of the first machine, HOST:PORT}"
    shift
    [ "$what" = train ] && exec gigaslide train --cluster "$address" "$@"
    exec ray start --address="$address" "$@"
    ;;
  stop) exec ray stop ;;
esac
