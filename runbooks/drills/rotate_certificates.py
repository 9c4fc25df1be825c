"""A gateway's certificate ends in a few days; it is replaced while a client is connected."""

import ssl

from observe import until
from stage import make

SIGN = (
    "openssl req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN=localhost 2>/dev/null && "
    "openssl x509 -req -in {name}.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days {days} "
    "-extfile <(echo subjectAltName=DNS:localhost,DNS:*.local.test) -out {name}.crt 2>/dev/null"
)


def run(drill):
    drill.run("openssl req -x509 -newkey rsa:2048 -nodes -keyout authority.key -out authority.crt -days 3650 -subj /CN=drill 2>/dev/null")
    drill.run(SIGN.format(name="short", days=5))
    drill.run("mkdir certs && cp short.crt certs/tls.crt && cp short.key certs/tls.key && cp authority.crt certs/ca.crt")
    drill.say("FAULT the gateway starts with a certificate that ends in five days")
    drill.stack()
    drill.fires("CertificateExpires")
    client = make("secure", None)
    client.tls_set_context(ssl.create_default_context(cafile=str(drill.folder / "certs/ca.crt")))
    client.connect("localhost", 8883)
    client.loop_start()
    until(client.is_connected, "no client through the gateway")
    lost = []
    client.on_disconnect = lambda *_: lost.append(1)
    drill.run("openssl x509 -in certs/tls.crt -noout -enddate -ext subjectAltName")
    drill.say("ACT   rename a new certificate and its key onto the old ones")
    drill.run(SIGN.format(name="new", days=90))
    drill.run("cp new.crt certs/tls.crt.new && cp new.key certs/tls.key.new")
    drill.run("openssl x509 -in certs/tls.crt.new -noout -pubkey | cmp - <(openssl pkey -in certs/tls.key.new -pubout) && echo fits")
    drill.run("mv certs/tls.key.new certs/tls.key && mv certs/tls.crt.new certs/tls.crt")
    drill.ends("CertificateExpires")
    drill.run("openssl s_client -connect localhost:8883 -servername localhost </dev/null 2>/dev/null | openssl x509 -noout -enddate")
    drill.until_value("min(envoy_server_days_until_first_cert_expiring)", lambda values: values and values[0] > 21)
    drill.check("the client stayed connected", not lost and client.is_connected())
    client.disconnect()
    client.loop_stop()
