// Snippets for microcontrollers: whole programs, so that only the name and password of the Wi-Fi are missing.

import { authority, hasOwnCa, joined, quoted, scheme, type Target, TOPIC } from './snippetParts'

/** A board has no files: the authority is a string of the program. */
const embedded = ({ caPem }: Target) => [
  'static const char authority[] =',
  `${(caPem ?? '')
    .trim()
    .split(/\r?\n/)
    .map((line) => `    "${line}\\n"`)
    .join('\n')};`,
  '',
]

export const arduino = (target: Target) => {
  const { host, port, tls, user, secret, clientId } = target
  const login = user === '' ? '' : `, ${quoted(user)}, ${quoted(secret)}`
  return joined([
    '#include <WiFi.h>',
    tls ? '#include <NetworkClientSecure.h>' : '#include <WiFiClient.h>',
    '#include <PubSubClient.h>',
    '',
    ...(hasOwnCa(target) ? embedded(target) : []),
    tls ? 'NetworkClientSecure network;' : 'WiFiClient network;',
    'PubSubClient client(network);',
    '',
    'void onMessage(char* topic, uint8_t* payload, unsigned int length) {',
    '  Serial.printf("%s %.*s\\n", topic, (int)length, (char*)payload);',
    '}',
    '',
    'void setup() {',
    '  Serial.begin(115200);',
    '  WiFi.begin("your Wi-Fi", "its password");',
    '  while (WiFi.status() != WL_CONNECTED) delay(200);',
    tls && '  // A certificate is only valid at the right time.',
    tls && '  configTime(0, 0, "pool.ntp.org");',
    tls && '  while (time(nullptr) < 1700000000) delay(200);',
    tls && (hasOwnCa(target) ? '  network.setCACert(authority);' : '  network.useBuiltinCACertBundle();'),
    `  client.setServer(${quoted(host)}, ${port});`,
    '  client.setCallback(onMessage);',
    '}',
    '',
    'void loop() {',
    '  if (!client.connected()) {',
    `    if (!client.connect(${quoted(clientId)}${login})) {`,
    '      Serial.printf("not connected: %d\\n", client.state());',
    '      delay(5000);',
    '      return;',
    '    }',
    '    client.subscribe("hello/#", 1);',
    `    client.publish("${TOPIC}", "hi from Arduino");`,
    '  }',
    '  client.loop();',
    '}',
  ])
}

const ESP_IDF_WIFI = [
  'static void on_network(void *arg, esp_event_base_t base, int32_t id, void *data) {',
  '    if (base == IP_EVENT) {',
  '        esp_mqtt_client_start(arg);',
  '    } else if (id == WIFI_EVENT_STA_START || id == WIFI_EVENT_STA_DISCONNECTED) {',
  '        esp_wifi_connect();',
  '    }',
  '}',
  '',
]

const ESP_IDF_START = [
  '    ESP_ERROR_CHECK(nvs_flash_init());',
  '    ESP_ERROR_CHECK(esp_netif_init());',
  '    ESP_ERROR_CHECK(esp_event_loop_create_default());',
  '    esp_netif_create_default_wifi_sta();',
  '    wifi_init_config_t init = WIFI_INIT_CONFIG_DEFAULT();',
  '    ESP_ERROR_CHECK(esp_wifi_init(&init));',
  '    wifi_config_t wifi = {.sta = {.ssid = "your Wi-Fi", .password = "its password"}};',
  '    ESP_ERROR_CHECK(esp_wifi_set_mode(WIFI_MODE_STA));',
  '    ESP_ERROR_CHECK(esp_wifi_set_config(WIFI_IF_STA, &wifi));',
  '    esp_event_handler_register(WIFI_EVENT, ESP_EVENT_ANY_ID, on_network, client);',
  '    esp_event_handler_register(IP_EVENT, IP_EVENT_STA_GOT_IP, on_network, client);',
  '    ESP_ERROR_CHECK(esp_wifi_start());',
]

export const espIdf = (target: Target) =>
  joined([
    '#include <stdio.h>',
    target.tls && !target.caPem && '#include "esp_crt_bundle.h"',
    '#include "esp_event.h"',
    '#include "esp_netif.h"',
    '#include "esp_wifi.h"',
    '#include "mqtt_client.h"',
    '#include "nvs_flash.h"',
    '',
    ...(hasOwnCa(target) ? embedded(target) : []),
    'static void on_mqtt(void *arg, esp_event_base_t base, int32_t id, void *data) {',
    '    esp_mqtt_event_handle_t event = data;',
    '    if (id == MQTT_EVENT_CONNECTED) {',
    '        esp_mqtt_client_subscribe(event->client, "hello/#", 1);',
    `        esp_mqtt_client_publish(event->client, "${TOPIC}", "hi from ESP-IDF", 0, 1, 0);`,
    '    } else if (id == MQTT_EVENT_DATA) {',
    '        printf("%.*s %.*s\\n", event->topic_len, event->topic, event->data_len, event->data);',
    '    }',
    '}',
    '',
    ...ESP_IDF_WIFI,
    'void app_main(void) {',
    '    esp_mqtt_client_config_t config = {',
    `        .broker.address.uri = ${quoted(`${scheme(target)}://${authority(target)}`)},`,
    target.tls && !target.caPem && '        .broker.verification.crt_bundle_attach = esp_crt_bundle_attach,',
    hasOwnCa(target) && '        .broker.verification.certificate = authority,',
    `        .credentials.client_id = ${quoted(target.clientId)},`,
    target.user !== '' && `        .credentials.username = ${quoted(target.user)},`,
    target.user !== '' && `        .credentials.authentication.password = ${quoted(target.secret)},`,
    '    };',
    '    esp_mqtt_client_handle_t client = esp_mqtt_client_init(&config);',
    '    esp_mqtt_client_register_event(client, ESP_EVENT_ANY_ID, on_mqtt, NULL);',
    ...ESP_IDF_START,
    '}',
  ])
