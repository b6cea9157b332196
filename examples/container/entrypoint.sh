#!/bin/sh
# The entry point of an image whose service runs in one of its replicas; the others wait, and one of them takes over.
#
#   COPY entrypoint.sh /entrypoint.sh
#   ENTRYPOINT ["/entrypoint.sh"]
#   CMD ["my-service", "--port", "8080"]
#
# SERVICE_NAME is the name to hold; the store is in LEASEHOLD_STORE or LEASEHOLD_STORE_FILE.
# A replica that loses the lease ends with 79: have it restarted, and it waits again.
# Give it more time to stop than the service takes to end, as `docker stop --time 30`.
set -eu

: "${SERVICE_NAME:?is not set, the name to hold}"
if [ "$#" -eq 0 ]; then
    echo "usage: ${0##*/} COMMAND [ARG...]" >&2
    exit 64
fi

# `exec`, so that the tool is PID 1, hands signals on and reaps.
exec leasehold run --ttl 15s --kill-after 4s "$SERVICE_NAME" -- "$@"
