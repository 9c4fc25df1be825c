#!/bin/bash
# Keeps the backup of the store running, and removes what is older than the region keeps. A job runs it every hour.
#
#   backup.sh URL CREDENTIALS DAYS
set -euo pipefail

url=$1 credentials=$2 days=$3

expire() { fdbbackup expire -d "$url" --blob-credentials "$credentials" "$1" "$days"; }

status=$(fdbbackup status -t millrace)
if ! grep -qE 'is in progress|is restorable' <<<"$status"; then
    # A snapshot a day and the changes since, so that each moment can be restored.
    fdbbackup start -t millrace -z -s 86400 --blob-credentials "$credentials" -d "$url"
    exit
fi
echo "$status"
# Some versions take the flag with underscores only.
expire --delete-before-days || expire --delete_before_days
