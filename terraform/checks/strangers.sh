# Sourced by the checks: certificates of others, beside those that secrets.sh makes.
# shellcheck shell=bash

# strangers FOLDER: FOLDER/s3 is the object storage's certificate, and FOLDER/stranger has the database's name. Other authorities
# than the region's signed them.
strangers() {
    local name subject names
    while read -r name subject names; do
        mkdir -p "$1/$name"
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj "$subject" -addext "subjectAltName=$names" \
            -keyout "$1/$name/tls.key" -out "$1/$name/tls.crt" 2>/dev/null
    done <<'NAMES'
s3 /CN=*.s3.eu-central-1.amazonaws.com DNS:*.s3.eu-central-1.amazonaws.com,DNS:s3.eu-central-1.amazonaws.com
stranger /O=Millrace/CN=foundationdb DNS:foundationdb
NAMES
}
