#!/usr/bin/env bash
# Makes a region's secrets and stores them: a certificate authority, a certificate for each kind of machine, the
# password of NATS, the token of the operator API. Terraform's state has none of them.
#
#   terraform output -json region | terraform/secrets.sh make FOLDER      makes what is missing in FOLDER, and renews what ends soon
#   terraform output -json region | terraform/secrets.sh put FOLDER       stores it in AWS Secrets Manager
#
# `put` stores nothing when the region has another authority, secret key or password of NATS than FOLDER; with --replace it does.
#
# FOLDER/secret-key is the setting secret_key_file of edge and control plane; `make` makes it for a region with has_secret_key.
# Every other file that you put into FOLDER/control or FOLDER/edge becomes /etc/millrace/secrets/NAME on these machines, such as
# FOLDER/control/smtp-password.
#
# FOLDER/gateway/tls.crt and tls.key are the devices' certificate, for the domain and *.domain: put them there, or let
# `make --self-signed` make one for trials. Keep FOLDER safe and out of git: whoever has ca.key can read all of the region.
set -euo pipefail

days=825
# A certificate that ends within these days is made again, by the same authority, so both are good meanwhile.
renew_days=400
umask 077

fail() {
    echo "secrets: $1" >&2
    exit 2
}

# The region's output, as JSON, is read from standard input.
field() { python3 -c 'import json, sys; value = json.loads(sys.argv[1])[sys.argv[2]]; print("\n".join(value) if isinstance(value, list) else value)' "$region" "$1"; }

# new FILE COMMAND...: writes what the command prints, unless FILE has a content. Half a file, of a full disk or an interrupted run, never
# has the name of a whole one.
new() {
    local file=$1
    shift
    [ ! -s "$file" ] || return 0
    { "$@" >"$file.new" && [ -s "$file.new" ]; } || fail "$file cannot be made"
    mv "$file.new" "$file"
}

authority() {
    new "$folder/ca.key" openssl ecparam -name prime256v1 -genkey -noout
    new "$folder/ca.crt" openssl req -x509 -new -key "$folder/ca.key" -sha256 -days 3650 -subj "/O=Millrace/CN=region" \
        -addext "basicConstraints=critical,CA:TRUE,pathlen:0" -addext "keyUsage=critical,keyCertSign,cRLSign"
}

# certificate ROLE NAMES [USE]: for both ends of a connection, since FoundationDB's and NATS' servers are clients too.
certificate() {
    local to=$folder/$1 use=${3:-serverAuth,clientAuth}
    mkdir -p "$to"
    [ -s "$to/ca.crt" ] || cp "$folder/ca.crt" "$to/ca.crt"
    if openssl x509 -in "$to/tls.crt" -noout -checkend $((renew_days * 86400)) >/dev/null 2>&1 && fits "$to" && [ "$(names_of "$to/tls.crt")" = "$2" ]; then
        return 0
    fi
    echo "makes the certificate of $1"
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:prime256v1 -out "$to/tls.key" 2>/dev/null || fail "$to/tls.key cannot be made"
    openssl req -new -key "$to/tls.key" -subj "/O=Millrace/CN=$1" |
        openssl x509 -req -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial -sha256 -days "$days" -out "$to/tls.crt" \
            -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=%s\nkeyUsage=critical,digitalSignature\nbasicConstraints=critical,CA:FALSE\n' "$2" "$use") \
            2>/dev/null || fail "$to/tls.crt cannot be made: $folder/ca.crt and ca.key must be a pair"
    cp "$folder/ca.crt" "$to/ca.crt"
}

names_of() { openssl x509 -in "$1" -noout -ext subjectAltName | sed -n '2{s/IP Address:/IP:/g;s/[ ]//g;p}'; }

# Whether a folder's certificate and key belong together: an interrupted renewal leaves the new key beside the old certificate.
fits() {
    local public
    public=$(openssl x509 -in "$1/tls.crt" -noout -pubkey 2>/dev/null) || return 1
    [ "$public" = "$(openssl pkey -in "$1/tls.key" -passin pass: -pubout 2>/dev/null)" ]
}

# It begins with a letter, because NATS reads a variable as it reads its configuration: digits would be a number.
password() { openssl rand -hex 32 | sed 's/^/p/'; }

make_all() {
    local address addresses names=DNS:nats domain secret
    addresses=$(field nats_addresses 2>/dev/null || true)
    [ -n "$addresses" ] || fail "standard input has no nats_addresses: it must be \`terraform output -json region\` after an apply"
    mkdir -p "$folder"
    authority
    for address in $addresses; do names+=,IP:$address; done
    certificate nats "$names"
    certificate foundationdb DNS:foundationdb
    certificate edge DNS:edge
    certificate control DNS:control
    new "$folder/nats-password" password
    secret=$(<"$folder/nats-password")
    echo "NATS_PODS_PASSWORD=\"$secret\"" >"$folder/nats/environment"
    echo "$secret" | tee "$folder/edge/nats-password" >"$folder/control/nats-password"
    new "$folder/operator-token" openssl rand -hex 32
    tee "$folder/edge/operator-token" <"$folder/operator-token" >"$folder/control/operator-token"
    [ "$(python3 -c 'import json, sys; print(json.loads(sys.argv[1]).get("has_secret_key"))' "$region")" != True ] || new "$folder/secret-key" openssl rand -hex 32
    if [ -e "$folder/secret-key" ]; then tee "$folder/edge/secret-key" <"$folder/secret-key" >"$folder/control/secret-key"; fi
    mkdir -p "$folder/gateway"
    # A certificate of another authority is never replaced.
    if [ "$self_signed" = yes ] && { [ ! -e "$folder/gateway/tls.crt" ] || openssl verify -partial_chain -no_check_time \
        -CAfile "$folder/ca.crt" "$folder/gateway/tls.crt" >/dev/null 2>&1; }; then
        domain=$(field domain)
        # For servers only: FoundationDB and NATS must not take it as a client's.
        certificate gateway "DNS:$domain,DNS:*.$domain" serverAuth
    fi
    [ -e "$folder/gateway/tls.key" ] || fail "there is no $folder/gateway/tls.crt and tls.key: put the certificate of *.$(field domain) there, or say --self-signed"
}

# values ROLE: its files as one JSON object.
values() { python3 -c 'import json, pathlib, sys; print(json.dumps({path.name: path.read_text() for path in sorted(pathlib.Path(sys.argv[1]).iterdir())}))' "$folder/$1"; }

name_of() { python3 -c 'import json, sys; print(json.loads(sys.argv[1])["secrets"][sys.argv[2]])' "$region" "$1"; }

# other_file ROLE: prints the first file by which FOLDER differs from the role's secret, which comes on standard input.
other_file() {
    python3 -c '
import json, pathlib, sys
stored, folder = json.load(sys.stdin), pathlib.Path(sys.argv[1])
read = lambda name: (folder / name).read_text() if (folder / name).exists() else None
print(next((name for name in ("ca.crt", "secret-key", "nats-password") if name in stored and stored[name] != read(name)), ""))' "$folder/$1"
}

# The machines of a region trust one authority, and its store is read with one key: those of a new folder cut all machines and devices off.
check_same_region() {
    local role name stored other
    said=$(mktemp)
    trap 'rm -f "$said"' EXIT
    # The gateway may get a certificate of another authority.
    for role in foundationdb nats edge control; do
        name=$(name_of "$role")
        if ! stored=$(aws secretsmanager get-secret-value --secret-id "$name" --query SecretString --output text 2>"$said"); then
            # No value was stored yet.
            grep -q ResourceNotFoundException "$said" || fail "the present value of $name cannot be read: $(<"$said"). Nothing was stored"
            continue
        fi
        other=$(other_file "$role" <<<"$stored")
        [ -z "$other" ] || fail "$folder/$role/$other is not the one that the region has in $name: $folder is not its folder, or was made again. Nothing was stored; --replace stores it nevertheless"
    done
}

put_all() {
    local role name
    command -v aws >/dev/null || fail "it needs the AWS command line (aws)"
    for role in foundationdb nats edge control gateway; do
        [ -d "$folder/$role" ] || fail "there is no $folder/$role: run \`secrets.sh make $folder\` first"
        # Machines that fetch such a pair stop at their next start.
        fits "$folder/$role" || fail "$folder/$role/tls.crt and tls.key do not belong together: nothing was stored"
        openssl x509 -in "$folder/$role/tls.crt" -noout -checkend 0 >/dev/null || fail "$folder/$role/tls.crt has ended: nothing was stored"
    done
    [ "$replaces" = yes ] || check_same_region
    for role in foundationdb nats edge control gateway; do
        name=$(name_of "$role")
        # Through a pipe: command lines can be read by others on the machine.
        values "$role" | aws secretsmanager put-secret-value --secret-id "$name" --secret-string file:///dev/stdin >/dev/null
        echo "stored $name"
    done
}

[ $# -ge 2 ] || fail "usage: secrets.sh make FOLDER [--self-signed], or secrets.sh put FOLDER [--replace]; the region's output comes on standard input"
folder=$2
self_signed=no
replaces=no
region=$(cat)
case "$1 ${3:-}" in
"make ") make_all ;;
"make --self-signed")
    self_signed=yes
    make_all
    ;;
"put ") put_all ;;
"put --replace")
    replaces=yes
    put_all
    ;;
*) fail "\"$1\" is unknown, or has no flag \"${3:-}\": make [--self-signed] or put [--replace] is allowed" ;;
esac
