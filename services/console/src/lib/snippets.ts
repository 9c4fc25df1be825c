// Code that connects a device, ready to paste: for each client library, with one endpoint and one credential.

import type { Endpoint } from '../api/endpoints'

export interface Target {
  host: string
  port: number
  tls: boolean
  wsUrl: string | null
  /** Empty: clients need no user name. */
  user: string
  secret: string
  clientId: string
  /** The authority that a client must trust; null: a client trusts it already. */
  caPem: string | null
}

/** The target of an endpoint. Without a credential, USER and PASSWORD stand for it. */
export const targetOf = ({ userPrefix, isOpen, ...way }: Endpoint, made: Made | null = null): Target => ({
  ...way,
  user: made ? `${userPrefix}${made.user}` : isOpen ? '' : `${userPrefix}USER`,
  secret: made?.secret ?? (isOpen ? '' : 'PASSWORD'),
  clientId: made?.user ?? EXAMPLE_CLIENT,
})

interface Made {
  user: string
  secret?: string | null
}

export const EXAMPLE_CLIENT = 'esp32-7'

export interface Snippet {
  id: string
  label: string
  /** A command that installs the library, or the library's name where an editor installs it. */
  install?: string
  /** The file that holds the code, in the folder where `install` ends. */
  file: string
  run?: string
  code: (target: Target) => string
}

const TOPIC = 'hello/world'
/** The page downloads `caPem` under this name. */
export const CA_FILE = 'millrace-ca.pem'

// Double-quoted strings of C, Go, Java, JavaScript, Python, Rust and YAML agree on JSON's escapes.
const quoted = (text: string) => JSON.stringify(text)
/** For a POSIX shell. */
const shell = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)
const joined = (lines: (string | false | null)[]) =>
  lines.filter((line) => line !== false && line !== null).join('\n')
const hasOwnCa = ({ tls, caPem }: Target) => tls && caPem !== null
const scheme = (target: Target) => (target.tls ? 'mqtts' : 'mqtt')
const authority = ({ host, port }: Target) => `${host.includes(':') ? `[${host}]` : host}:${port}`

/** The options with which each command of mosquitto reaches a broker. */
export function mosquittoOptions({ host, port, tls, user, secret, caPem }: Target) {
  const trust = caPem ? ` --cafile ${CA_FILE}` : ' --tls-use-os-certs'
  const login = user === '' ? '' : ` -u ${shell(user)} -P ${shell(secret)}`
  return `-h ${host} -p ${port}${tls ? trust : ''}${login}`
}

/** A command that stores a session for a filter. */
export const storedSession = (target: Target, filter: string) =>
  `mosquitto_sub ${mosquittoOptions(target)} -i away-1 -c -q 1 -t ${shell(filter)}`

function mosquitto(target: Target) {
  const common = mosquittoOptions(target)
  return joined([
    '# in one terminal',
    `mosquitto_sub ${common} -t 'hello/#' -v`,
    '',
    '# in another one',
    `mosquitto_pub ${common} -i ${shell(target.clientId)} -q 1 -t ${TOPIC} -m hi`,
  ])
}

const python = ({ host, port, tls, user, secret, clientId, caPem }: Target) =>
  joined([
    'import paho.mqtt.client as mqtt',
    '',
    'def on_connect(client, userdata, flags, reason, properties):',
    '    print("connected:", reason)',
    '    client.subscribe("hello/#", qos=1)',
    `    client.publish("${TOPIC}", "hi from Python", qos=1)`,
    '',
    'def on_message(client, userdata, message):',
    '    print(message.topic, message.payload.decode())',
    '',
    `client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=${quoted(clientId)}, protocol=mqtt.MQTTv5)`,
    user !== '' && `client.username_pw_set(${quoted(user)}, ${quoted(secret)})`,
    tls && `client.tls_set(${caPem ? quoted(CA_FILE) : ''})`,
    'client.on_connect = on_connect',
    'client.on_message = on_message',
    `client.connect(${quoted(host)}, ${port})`,
    'client.loop_forever()',
  ])

const javascript = (target: Target) =>
  joined([
    hasOwnCa(target) && "import { readFileSync } from 'node:fs'",
    "import mqtt from 'mqtt'",
    '',
    `const client = mqtt.connect(${quoted(`${scheme(target)}://${authority(target)}`)}, {`,
    `  clientId: ${quoted(target.clientId)},`,
    '  protocolVersion: 5,',
    target.user !== '' && `  username: ${quoted(target.user)},`,
    target.user !== '' && `  password: ${quoted(target.secret)},`,
    hasOwnCa(target) && `  ca: readFileSync('${CA_FILE}'),`,
    '})',
    "client.on('connect', async () => {",
    "  await client.subscribeAsync('hello/#', { qos: 1 })",
    `  await client.publishAsync('${TOPIC}', 'hi from JavaScript', { qos: 1 })`,
    '})',
    "client.on('message', (topic, payload) => console.log(topic, payload.toString()))",
    "client.on('error', (error) => console.error(error.message))",
  ])

const GO_CA = [
  `\tpem, err := os.ReadFile("${CA_FILE}")`,
  '\tif err != nil {',
  '\t\tpanic(err)',
  '\t}',
  '\tauthorities := x509.NewCertPool()',
  '\tauthorities.AppendCertsFromPEM(pem)',
]

const go = (target: Target) =>
  joined([
    'package main',
    '',
    'import (',
    hasOwnCa(target) && '\t"crypto/tls"',
    hasOwnCa(target) && '\t"crypto/x509"',
    '\t"fmt"',
    hasOwnCa(target) && '\t"os"',
    '',
    '\tmqtt "github.com/eclipse/paho.mqtt.golang"',
    ')',
    '',
    'func main() {',
    ...(hasOwnCa(target) ? GO_CA : []),
    '\toptions := mqtt.NewClientOptions().',
    `\t\tAddBroker(${quoted(`${scheme(target)}://${authority(target)}`)}).`,
    target.user !== '' && `\t\tSetUsername(${quoted(target.user)}).`,
    target.user !== '' && `\t\tSetPassword(${quoted(target.secret)}).`,
    hasOwnCa(target) && '\t\tSetTLSConfig(&tls.Config{RootCAs: authorities}).',
    `\t\tSetClientID(${quoted(target.clientId)})`,
    '\tclient := mqtt.NewClient(options)',
    '\tif token := client.Connect(); token.Wait() && token.Error() != nil {',
    '\t\tpanic(token.Error())',
    '\t}',
    '\tprint := func(_ mqtt.Client, message mqtt.Message) {',
    '\t\tfmt.Println(message.Topic(), string(message.Payload()))',
    '\t}',
    '\tclient.Subscribe("hello/#", 1, print).Wait()',
    `\tclient.Publish("${TOPIC}", 1, false, "hi from Go").Wait()`,
    '\tselect {}',
    '}',
  ])

const rust = ({ host, port, tls, user, secret, clientId, caPem }: Target) =>
  joined([
    'use rumqttc::{AsyncClient, Event, MqttOptions, Packet, QoS};',
    '',
    '#[tokio::main]',
    'async fn main() -> Result<(), Box<dyn std::error::Error>> {',
    `    let mut options = MqttOptions::new(${quoted(clientId)}, ${quoted(host)}, ${port});`,
    user !== '' && `    options.set_credentials(${quoted(user)}, ${quoted(secret)});`,
    tls && !caPem && '    options.set_transport(rumqttc::Transport::tls_with_default_config());',
    tls && caPem && `    let authority = std::fs::read("${CA_FILE}")?;`,
    tls && caPem && '    options.set_transport(rumqttc::Transport::tls(authority, None, None));',
    '    let (client, mut events) = AsyncClient::new(options, 10);',
    '    client.subscribe("hello/#", QoS::AtLeastOnce).await?;',
    `    client.publish("${TOPIC}", QoS::AtLeastOnce, false, "hi from Rust").await?;`,
    '    loop {',
    '        if let Event::Incoming(Packet::Publish(message)) = events.poll().await? {',
    '            println!("{} {}", message.topic, String::from_utf8_lossy(&message.payload));',
    '        }',
    '    }',
    '}',
  ])

const JAVA_CA = [
  '        var store = KeyStore.getInstance(KeyStore.getDefaultType());',
  '        store.load(null, null);',
  `        try (var file = new FileInputStream("${CA_FILE}")) {`,
  '            for (var authority : CertificateFactory.getInstance("X.509").generateCertificates(file)) {',
  '                store.setCertificateEntry("authority-" + store.size(), authority);',
  '            }',
  '        }',
  '        var authorities = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());',
  '        authorities.init(store);',
]

const java = ({ host, port, tls, user, secret, clientId, caPem }: Target) =>
  joined([
    'import com.hivemq.client.mqtt.MqttClient;',
    tls && caPem && 'import java.io.FileInputStream;',
    'import java.nio.charset.StandardCharsets;',
    tls && caPem && 'import java.security.KeyStore;',
    tls && caPem && 'import java.security.cert.CertificateFactory;',
    tls && caPem && 'import javax.net.ssl.TrustManagerFactory;',
    '',
    'public class Hello {',
    `    public static void main(String[] args)${tls && caPem ? ' throws Exception' : ''} {`,
    ...(tls && caPem ? JAVA_CA : []),
    '        var client = MqttClient.builder()',
    '            .useMqttVersion5()',
    `            .identifier(${quoted(clientId)})`,
    `            .serverHost(${quoted(host)})`,
    `            .serverPort(${port})`,
    tls && !caPem && '            .sslWithDefaultConfig()',
    tls && caPem && '            .sslConfig().trustManagerFactory(authorities).applySslConfig()',
    user !== '' && '            .simpleAuth()',
    user !== '' && `                .username(${quoted(user)})`,
    user !== '' && `                .password(${quoted(secret)}.getBytes(StandardCharsets.UTF_8))`,
    user !== '' && '                .applySimpleAuth()',
    '            .buildAsync();',
    '        client.connect().join();',
    '        client.subscribeWith().topicFilter("hello/#")',
    '            .callback(message -> System.out.println(message.getTopic() + " " +',
    '                new String(message.getPayloadAsBytes(), StandardCharsets.UTF_8)))',
    '            .send().join();',
    `        client.publishWith().topic("${TOPIC}").payload("hi from Java".getBytes(StandardCharsets.UTF_8)).send().join();`,
    '    }',
    '}',
  ])

const arduino = ({ host, port, tls, user, secret, clientId }: Target) =>
  joined([
    '#include <WiFi.h>',
    tls ? '#include <WiFiClientSecure.h>' : '#include <WiFiClient.h>',
    '#include <PubSubClient.h>',
    '',
    tls ? 'WiFiClientSecure network;' : 'WiFiClient network;',
    'PubSubClient client(network);',
    '',
    'void onMessage(char* topic, byte* payload, unsigned int length) {',
    '  Serial.printf("%s %.*s\\n", topic, length, (char*)payload);',
    '}',
    '',
    'void setup() {',
    '  Serial.begin(115200);',
    '  WiFi.begin("your Wi-Fi", "its password");',
    '  while (WiFi.status() != WL_CONNECTED) delay(200);',
    tls && '  network.setInsecure();  // for a first try; use setCACert() with the CA of your broker',
    `  client.setServer(${quoted(host)}, ${port});`,
    '  client.setCallback(onMessage);',
    '}',
    '',
    'void loop() {',
    user === ''
      ? `  if (!client.connected() && client.connect(${quoted(clientId)})) {`
      : `  if (!client.connected() && client.connect(${quoted(clientId)}, ${quoted(user)}, ${quoted(secret)})) {`,
    '    client.subscribe("hello/#", 1);',
    `    client.publish("${TOPIC}", "hi from Arduino");`,
    '  }',
    '  client.loop();',
    '}',
  ])

const espIdf = (target: Target) =>
  joined([
    '#include <stdio.h>',
    target.tls && !target.caPem && '#include "esp_crt_bundle.h"',
    '#include "mqtt_client.h"',
    '',
    hasOwnCa(target) && `// CMakeLists.txt: idf_component_register(... EMBED_TXTFILES ${CA_FILE})`,
    hasOwnCa(target) && 'extern const char authority[] asm("_binary_millrace_ca_pem_start");',
    hasOwnCa(target) && '',
    'static void on_event(void *arg, esp_event_base_t base, int32_t id, void *data) {',
    '    esp_mqtt_event_handle_t event = data;',
    '    if (id == MQTT_EVENT_CONNECTED) {',
    '        esp_mqtt_client_subscribe(event->client, "hello/#", 1);',
    `        esp_mqtt_client_publish(event->client, "${TOPIC}", "hi from ESP-IDF", 0, 1, 0);`,
    '    } else if (id == MQTT_EVENT_DATA) {',
    '        printf("%.*s %.*s\\n", event->topic_len, event->topic, event->data_len, event->data);',
    '    }',
    '}',
    '',
    'void start_mqtt(void) {  // call it once the network is up',
    '    esp_mqtt_client_config_t config = {',
    `        .broker.address.uri = ${quoted(`${scheme(target)}://${authority(target)}`)},`,
    target.tls && !target.caPem && '        .broker.verification.crt_bundle_attach = esp_crt_bundle_attach,',
    hasOwnCa(target) && '        .broker.verification.certificate = authority,',
    `        .credentials.client_id = ${quoted(target.clientId)},`,
    target.user !== '' && `        .credentials.username = ${quoted(target.user)},`,
    target.user !== '' && `        .credentials.authentication.password = ${quoted(target.secret)},`,
    '    };',
    '    esp_mqtt_client_handle_t client = esp_mqtt_client_init(&config);',
    '    esp_mqtt_client_register_event(client, ESP_EVENT_ANY_ID, on_event, NULL);',
    '    esp_mqtt_client_start(client);',
    '}',
  ])

const nodeRed = ({ host, port, tls, user, secret, clientId, caPem }: Target) =>
  joined([
    '# Node-RED, "mqtt in" node, new mqtt-broker',
    `Server      ${host}`,
    `Port        ${port}`,
    `Use TLS     ${tls ? 'yes' : 'no'}`,
    tls && caPem && `CA cert     ${CA_FILE}`,
    'Protocol    MQTT V5',
    `Client ID   ${clientId}`,
    user !== '' && `Username    ${user}`,
    user !== '' && `Password    ${secret}`,
    'Topic       hello/#',
  ])

const homeAssistant = ({ host, port, tls, user, secret, clientId, caPem }: Target) =>
  joined([
    '# Home Assistant, Settings, Devices & services, Add integration, MQTT',
    `Broker           ${host}`,
    `Port             ${port}`,
    user !== '' && `Username         ${user}`,
    user !== '' && `Password         ${secret}`,
    '# Advanced options',
    `Client ID        ${clientId}`,
    `Broker certificate validation   ${tls ? (caPem ? 'Custom' : 'Auto') : 'Off'}`,
    tls && caPem && `Upload custom CA certificate file   ${CA_FILE}`,
    'MQTT protocol    5',
  ])

export const SNIPPETS: readonly Snippet[] = [
  {
    id: 'mosquitto',
    label: 'mosquitto',
    install: 'apt-get install mosquitto-clients',
    file: 'shell',
    code: mosquitto,
  },
  {
    id: 'python',
    label: 'Python',
    install: 'pip install paho-mqtt',
    file: 'hello.py',
    run: 'python3 hello.py',
    code: python,
  },
  {
    id: 'javascript',
    label: 'JavaScript',
    install: 'npm install mqtt',
    file: 'hello.mjs',
    run: 'node hello.mjs',
    code: javascript,
  },
  {
    id: 'go',
    label: 'Go',
    install: 'go mod init hello && go get github.com/eclipse/paho.mqtt.golang',
    file: 'main.go',
    run: 'go run .',
    code: go,
  },
  {
    id: 'rust',
    label: 'Rust',
    install:
      'cargo new hello && cd hello && cargo add rumqttc && cargo add tokio --features macros,rt-multi-thread',
    file: 'src/main.rs',
    run: 'cargo run',
    code: rust,
  },
  {
    id: 'java',
    label: 'Java',
    install: 'com.hivemq:hivemq-mqtt-client:1.3.7',
    file: 'Hello.java',
    code: java,
  },
  {
    id: 'arduino',
    label: 'Arduino',
    install: 'PubSubClient (Library Manager)',
    file: 'hello.ino',
    code: arduino,
  },
  { id: 'esp-idf', label: 'ESP-IDF', file: 'main/mqtt.c', code: espIdf },
  { id: 'node-red', label: 'Node-RED', file: 'settings', code: nodeRed },
  { id: 'home-assistant', label: 'Home Assistant', file: 'settings', code: homeAssistant },
]
