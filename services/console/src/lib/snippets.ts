// Code that connects a device, ready to paste: for each client library, with one endpoint and one credential.

import type { Endpoint } from '../api/endpoints'
import { arduino, espIdf } from './boardSnippets'
import { nodeRed } from './nodeRedSnippet'
import { authority, CA_FILE, hasOwnCa, joined, quoted, scheme, type Target, TOPIC } from './snippetParts'

export { CA_FILE, type Target } from './snippetParts'

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
  /** The code contains the authority, or names the field that takes its file. */
  ownsCa?: boolean
  /** The program joins a Wi-Fi. */
  isBoard?: boolean
  code: (target: Target) => string
}

/** For a POSIX shell. */
const shell = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`)

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
    install: 'esp32 by Espressif 3.3.12 or newer (Boards Manager), PubSubClient (Library Manager)',
    file: 'hello.ino',
    ownsCa: true,
    isBoard: true,
    code: arduino,
  },
  {
    id: 'esp-idf',
    label: 'ESP-IDF',
    install: 'idf.py create-project hello && cd hello && idf.py add-dependency espressif/mqtt',
    file: 'main/hello.c',
    run: 'idf.py set-target esp32 && idf.py build flash monitor',
    ownsCa: true,
    isBoard: true,
    code: espIdf,
  },
  {
    id: 'node-red',
    label: 'Node-RED',
    file: 'Menu, Import, paste, Import, Deploy',
    ownsCa: true,
    code: nodeRed,
  },
  { id: 'home-assistant', label: 'Home Assistant', file: 'settings', ownsCa: true, code: homeAssistant },
]
