# Functions for the scripts beside this one, which source it: a server with the API, and its
# tenants.
#
# BIN is the folder of the programs. PORT is a free port, and the port after it is for HTTP.

cd "$(dirname "$0")/.."
bin=${BIN:-${CARGO_TARGET_DIR:-target}/release}
port=${PORT:-$((20000 + $$ % 10000))}
http=127.0.0.1:$((port + 1))
api=http://$http/api/v1
folder=$(mktemp -d)

# Starts a server that ends with the script: serve FLAG...
serve() {
    "$bin/millrace" serve --data-dir "$folder/data" --ws-listen off --http-listen "$http" --sign-up anybody "$@" > "$folder/log" 2>&1 &
    server=$!
    trap 'kill $server || true; wait $server || true; rm -rf "$folder"' EXIT
    until curl -fs "http://$http/healthz" > /dev/null; do
        kill -0 $server || { cat "$folder/log"; exit 1; }
        sleep 0.1
    done
}

# Prints a field of the JSON on standard input, if the field is a text.
field() {
    sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -1
}

# Makes a tenant with a broker: tenant NAME. Afterwards `ask` calls curl as that tenant, $broker is
# the URL of its broker, and $name the broker's name.
tenant() {
    jar=$folder/$1
    csrf=$(curl -fsS -c "$jar" "$api/sign-up" --json \
        "{\"email\":\"$1@example.org\",\"password\":\"a sentence for nobody\",\"name\":\"$1\"}" | field csrf_token)
    brokers=$api/organisations/$(curl -fsS -b "$jar" "$api/organisations" | field id)/brokers
    name=$(ask "$brokers" --json "{\"display_name\":\"$1\"}" | field name)
    broker=$brokers/$name
}

ask() {
    curl -fsS -b "$jar" -H "X-CSRF-Token: $csrf" -H 'If-Match: *' "$@"
}
