package mqtt_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.k6.io/k6/js/modulestest"
	"go.k6.io/k6/lib"
	"go.k6.io/k6/lib/netext"
	"go.k6.io/k6/metrics"

	"millrace/loadtests/k6/mqtt"
)

// vu is one VU with the module loaded, and the samples that it makes.
type vu struct {
	*modulestest.Runtime
	samples chan metrics.SampleContainer
	lines   []string
}

const patience = 20 * time.Second

func newVU(t *testing.T, values map[string]any) *vu {
	t.Helper()
	v := &vu{Runtime: modulestest.NewRuntime(t), samples: make(chan metrics.SampleContainer, 10_000)}
	registry := v.VU.InitEnvField.Registry
	exports := mqtt.New().NewModuleInstance(v.VU).Exports()
	rt := v.VU.Runtime()
	require.NoError(t, rt.Set("mqtt", exports.Named))
	require.NoError(t, rt.Set("say", func(line string) { v.lines = append(v.lines, line) }))
	for name, value := range values {
		require.NoError(t, rt.Set(name, value))
	}
	v.MoveToVUContext(&lib.State{
		Dialer: &netext.Dialer{Dialer: net.Dialer{}}, Samples: v.samples,
		Tags: lib.NewVUStateTags(registry.RootTagSet()),
	})
	return v
}

// run executes an async function body and returns what it said.
func (v *vu) run(t *testing.T, body string) []string {
	t.Helper()
	stuck := time.AfterFunc(patience, v.CancelContext)
	defer stuck.Stop()
	_, err := v.RunOnEventLoop(`
		const { Client, Flow } = mqtt
		const until = async condition => { while (!condition()) await new Promise(r => setTimeout(r, 5)) };
		(async () => {` + body + `})()`)
	require.NoError(t, err)
	require.NoError(t, v.VU.Context().Err(), "the script did not end")
	return v.lines
}

// sum adds up the samples of a metric that have a tag.
func (v *vu) sum(name, tag, value string) (total float64, count int) {
	for len(v.samples) > 0 {
		for _, s := range (<-v.samples).GetSamples() {
			got, _ := s.Tags.Get(tag)
			if s.Metric.Name == name && (tag == "" || got == value) {
				total += s.Value
				count++
			}
		}
	}
	return total, count
}

func urls(t *testing.T, b broker) map[string]map[string]any {
	t.Helper()
	a := newAuthority(t)
	plain := func(url string) map[string]any { return map[string]any{"url": url} }
	secure := func(url string) map[string]any {
		return map[string]any{"url": url, "tls": map[string]any{"ca": a.pem}}
	}
	_, _, cert, key := certificate(t, &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, a)
	return map[string]map[string]any{
		"tcp": plain("mqtt://" + b.mqtt),
		"ws":  plain("ws://" + b.webSocket + "/mqtt"),
		"tls": secure("mqtts://" + a.terminateTLS(t, b.mqtt, false)),
		"wss": secure("wss://" + a.terminateTLS(t, b.webSocket, false)),
		"mutual tls": {"url": "mqtts://" + a.terminateTLS(t, b.mqtt, true),
			"tls": map[string]any{"ca": a.pem, "cert": cert, "key": key}},
	}
}

func TestMessagesComeBackOverEveryVersionTransportAndQoS(t *testing.T) {
	t.Parallel()
	for transport, settings := range urls(t, realBroker(t)) {
		for _, version := range []string{"3.1.1", "5.0"} {
			t.Run(transport+" "+version, func(t *testing.T) {
				t.Parallel()
				v := newVU(t, map[string]any{"settings": settings, "version": version, "prefix": transport + version})
				said := v.run(t, `
					const client = new Client({ ...settings, version })
					const got = []
					client.on('message', m => got.push(m))
					await client.connect()
					for (const qos of [0, 1, 2]) {
						await client.subscribe(prefix + '/+', { qos })
						await client.publish(prefix + '/' + qos, 'grüße ' + qos, { qos })
						await until(() => got.length > qos)
						const m = got[qos]
						say([m.topic.slice(prefix.length), m.qos, m.text(), m.payload.byteLength, m.retain].join(' '))
					}
					await client.unsubscribe(prefix + '/+')
					await client.end()
					say(client.connected())
				`)
				require.Equal(t, []string{"/0 0 grüße 0 9 false", "/1 1 grüße 1 9 false", "/2 2 grüße 2 9 false", "false"}, said)
			})
		}
	}
}

func TestSessionsRetainedMessagesSharesAndWills(t *testing.T) {
	t.Parallel()
	b := realBroker(t)
	for _, version := range []string{"3.1.1", "5.0"} {
		for name, test := range map[string]struct {
			script string
			want   []string
		}{
			"a session keeps what comes while its client is away": {`
				const device = () => new Client({ url, version, clientId: prefix, cleanStart: false,
					...(version === '5.0' ? { sessionExpirySeconds: 60 } : {}) })
				const first = device()
				say((await first.connect()).sessionPresent)
				await first.subscribe(prefix + '/#', { qos: 1 })
				first.drop()
				await other.publish(prefix + '/a', 'meanwhile', { qos: 1 })
				const second = device()
				const got = []
				second.on('message', m => got.push(m.text()))
				say((await second.connect()).sessionPresent)
				await until(() => got.length > 0)
				say(got.join())
				await second.end()
			`, []string{"false", "true", "meanwhile"}},
			"a retained message waits for subscribers": {`
				await other.publish(prefix, 'kept', { qos: 1, retain: true })
				const client = new Client({ url, version })
				const got = []
				client.on('message', m => got.push(m.text() + m.retain))
				await client.connect()
				await client.subscribe(prefix)
				await until(() => got.length > 0)
				say(got.join())
				await other.publish(prefix, '', { qos: 1, retain: true })
				await client.end()
			`, []string{"kepttrue"}},
			"the members of a shared subscription share": {`
				let count = 0
				const members = [1, 2].map(() => new Client({ url, version }))
				for (const member of members) {
					member.on('message', () => count++)
					await member.connect()
					await member.subscribe('$share/g/' + prefix)
				}
				for (let i = 0; i < 10; i++) await other.publish(prefix, '', { qos: 1 })
				await other.publish(prefix, 'last', { qos: 1 })
				await until(() => count >= 11)
				say(count)
				for (const member of members) await member.end()
			`, []string{"11"}},
			"a will is said of a client that drops, and of no other": {`
				const watcher = new Client({ url, version })
				const got = []
				watcher.on('message', m => got.push(m.text()))
				await watcher.connect()
				await watcher.subscribe(prefix)
				const mortal = payload => new Client({ url, version, will: { topic: prefix, payload, qos: 1 } })
				const [ends, drops] = [mortal('ended'), mortal('dropped')]
				await ends.connect()
				await ends.end()
				await drops.connect()
				drops.drop()
				await until(() => got.length > 0)
				say(got.join())
				await watcher.end()
			`, []string{"dropped"}},
		} {
			t.Run(version+" "+name, func(t *testing.T) {
				t.Parallel()
				v := newVU(t, map[string]any{"url": "mqtt://" + b.mqtt, "version": version, "prefix": strings.ReplaceAll(t.Name(), "/", "-")})
				require.Equal(t, test.want, v.run(t, `
					const other = new Client({ url, version })
					await other.connect()
					`+test.script+`
					await other.end()
				`))
			})
		}
	}
}

func TestProperties(t *testing.T) {
	t.Parallel()
	v := newVU(t, map[string]any{"url": "mqtt://" + realBroker(t).mqtt})
	require.Equal(t, []string{"text/plain answers 1,2 blue"}, v.run(t, `
		const client = new Client(url)
		const got = []
		client.on('message', m => got.push(m))
		await client.connect()
		await client.subscribe([{ filter: 'properties', qos: 1 }])
		await client.publish('properties', new Uint8Array([7]).buffer, {
			qos: 1, contentType: 'text/plain', responseTopic: 'answers', correlationData: new Uint8Array([1, 2]).buffer,
			userProperties: { colour: 'blue' },
		})
		await until(() => got.length > 0)
		const m = got[0]
		say([m.contentType, m.responseTopic, new Uint8Array(m.correlationData).join(), m.userProperties.colour].join(' '))
		await client.end()
	`))
}

func TestMisuseIsSaidClearly(t *testing.T) {
	t.Parallel()
	b := realBroker(t)
	for script, want := range map[string]string{
		`new Client({})`:                                                          "invalid_argument a client needs a url, such as mqtt://127.0.0.1:1883",
		`new Client('nonsense')`:                                                  `invalid_argument "nonsense" is no URL of a broker; one looks like mqtt://127.0.0.1:1883`,
		`new Client('http://127.0.0.1')`:                                          `invalid_argument "http://127.0.0.1": the scheme must be mqtt, mqtts, ws or wss`,
		`new Client('mqtt://a:b@127.0.0.1')`:                                      "invalid_argument the url must not hold a password; use username and password",
		`new Client({ url, clientIdd: 'a' })`:                                     `invalid_argument the settings of a client: unknown field "clientIdd"`,
		`new Client({ url, clientId: 7 })`:                                        "invalid_argument the settings of a client: clientId must not be a number",
		`new Client({ url, version: 3 })`:                                         `invalid_argument version 3 is not spoken; say 5 or "3.1.1"`,
		`new Client({ url, cleanStart: false })`:                                  "invalid_argument cleanStart: false needs a clientId, by which the broker knows the session",
		`new Client({ url, tls: {} })`:                                            "so tls has no meaning; use mqtts or wss",
		`new Client({ url, version: '3.1.1', receiveMaximum: 1 })`:                "invalid_argument receiveMaximum needs version 5",
		`new Client({ url, timeoutSeconds: 0 })`:                                  "invalid_argument timeoutSeconds must be more than 0",
		`await new Client(url).publish('a', 'b')`:                                 "not_connected publish: the client is not connected; await connect() first",
		`await new Client(url).subscribe('a')`:                                    "not_connected subscribe: the client is not connected; await connect() first",
		`await ended.publish('a', 'b')`:                                           "not_connected publish: the client is not connected; await connect() first",
		`await client.connect()`:                                                  "invalid_argument this client is connected already; end() comes first",
		`await client.publish('a/#', 'b')`:                                        `invalid_argument "a/#" is no topic to publish to: it must not be empty nor hold + or #`,
		`await client.publish('a', 'b', { qos: 3 })`:                              "invalid_argument qos must be 0, 1 or 2, not 3",
		`await client.publish('a', 7)`:                                            "invalid_argument the payload must be a text or an ArrayBuffer",
		`await client.publish('a', 'b', 1)`:                                       "invalid_argument the options of publish must be an object, such as { qos: 1 }",
		`await client.subscribe()`:                                                "invalid_argument subscribe needs a filter, or a list of { filter, qos }",
		`await client.subscribe('a/#/b')`:                                         "",
		`await client.subscribe('closed/a')`:                                      "refused",
		`await client.publish('closed/a', 'b', { qos: 1 })`:                       "refused the broker refused the message (reason code 0x87)",
		`client.on('open', () => {})`:                                             `invalid_argument there is no event "open"; there are message and close`,
		`client.on('message', 7)`:                                                 `invalid_argument on("message") needs a function`,
		`await new Client('mqtt://127.0.0.1:1').connect()`:                        "network connect to 127.0.0.1:1",
		`await new Client({ url, username: 'ann', password: 'wrong' }).connect()`: "refused the broker refused the connection",
		`await new Client({ url, version: '3.1.1', username: 'ann', password: 'wrong' }).connect()`: "refused the broker refused the connection",
		`await new Client(webSocket + '/nowhere').connect()`:                                        "refused",
		`new Client()`:                  "invalid_argument a client needs a url",
		`await client.publish()`:        "is no topic to publish to",
		`new Flow('a').receive()`:       "invalid_argument receive needs a client",
		`await new Flow('a').publish()`: "invalid_argument publish needs a client",
		`await client.unsubscribe()`:    "invalid_argument unsubscribe needs a filter",
		`new Flow('')`:                  "invalid_argument the name of a flow must be a text that is not empty",
		`await new Flow('a').publish(client, { topic: 'a', count: 1, size: 3 })`: "invalid_argument size must be at least 28 bytes",
		`await new Flow('a').publish(client, { topic: 'a' })`:                    "invalid_argument publish needs a count or seconds",
		`await new Flow('a').ready({ receivers: 1, timeoutSeconds: 0.05 })`:      "timeout ready: 0 of 1 receivers are there after 0.05 s",
		`await new Flow('b').complete({ publishers: 1, timeoutSeconds: 0.05 })`:  "timeout complete: the publishers have not finished after 0.05 s",
		`new Flow('a').receive(new Client(url))`:                                 "invalid_argument receive needs an audience, or a client with a clientId",
	} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			v := newVU(t, map[string]any{"url": "mqtt://" + b.mqtt, "webSocket": "ws://" + b.webSocket})
			said := v.run(t, fmt.Sprintf(`
				const client = new Client({ url, clientId: %q })
				await client.connect()
				const ended = new Client(url)
				await ended.connect()
				await ended.end()
				try {
					%s
					say('nothing was thrown')
				} catch (e) {
					say(e.name + ' ' + e.reason + ' ' + e.message)
				}
				await client.end()
			`, t.Name(), script))
			require.Len(t, said, 1)
			require.Contains(t, said[0], "MQTTError")
			require.Contains(t, said[0], want)
		})
	}
}

func TestAConnectionThatTheBrokerEndsIsTold(t *testing.T) {
	t.Parallel()
	v := newVU(t, map[string]any{"url": "mqtt://" + realBroker(t).mqtt})
	// The second client takes the session over.
	require.Equal(t, []string{"server_disconnect 142", "not_connected"}, v.run(t, `
		const first = new Client({ url, clientId: 'taken' })
		let lost
		first.on('close', e => { lost = e })
		await first.connect()
		const second = new Client({ url, clientId: 'taken' })
		await second.connect()
		await until(() => lost)
		say(lost.reason + ' ' + lost.reasonCode)
		await first.publish('a', 'b').catch(e => say(e.reason))
		await second.end()
	`))
	total, _ := v.sum("mqtt_errors", "reason", "server_disconnect")
	require.Equal(t, 1.0, total)
}

func TestAnIterationThatIsInterruptedLeavesNoConnection(t *testing.T) {
	t.Parallel()
	v := newVU(t, map[string]any{"url": "mqtt://" + realBroker(t).mqtt})
	time.AfterFunc(300*time.Millisecond, v.CancelContext)
	began := time.Now()
	_, err := v.RunOnEventLoop(`(async () => {
		const client = new mqtt.Client(url)
		await client.connect()
		// It is never ended.
	})()`)
	require.NoError(t, err)
	require.Less(t, time.Since(began), patience)
}

func TestAFlowIsMeasured(t *testing.T) {
	t.Parallel()
	b := realBroker(t)
	for _, version := range []string{"3.1.1", "5.0"} {
		for qos := range 3 {
			t.Run(fmt.Sprint(version, " QoS ", qos), func(t *testing.T) {
				t.Parallel()
				topic := strings.ReplaceAll(t.Name(), "/", "-")
				v := newVU(t, map[string]any{"url": "mqtt://" + b.mqtt, "version": version, "qos": qos, "topic": topic})
				said := v.run(t, `
					const flow = new Flow('flow')
					const [sink, source] = ['sink', 'source'].map(name => new Client({ url, version, clientId: topic + name }))
					flow.receive(sink)
					await Promise.all([sink.connect(), source.connect()])
					await sink.subscribe(topic, { qos })
					flow.arrive()
					await flow.ready({ receivers: 1 })
					const sent = await flow.publish(source, { topic, qos, count: 500, window: 20, ahead: 50 })
					await flow.complete({ publishers: 1 })
					const v = flow.verdict()
					say([sent.sent, sent.acknowledged, v.expected, v.received, v.lost, v.repeated, v.outOfOrder, v.stray].join(' '))
					await Promise.all([sink.end(), source.end()])
				`)
				require.Equal(t, []string{"500 500 500 500 0 0 0 0"}, said)
				counts := map[string]float64{}
				for len(v.samples) > 0 {
					for _, s := range (<-v.samples).GetSamples() {
						if s.Metric.Type == metrics.Trend {
							counts[s.Metric.Name]++
							continue
						}
						counts[s.Metric.Name] += s.Value
					}
				}
				require.Equal(t, 2.0, counts["mqtt_connects"])
				require.Equal(t, 2.0, counts["mqtt_connect_duration"])
				require.Equal(t, 1.0, counts["mqtt_subscribe_duration"])
				require.Equal(t, 500.0, counts["mqtt_messages_sent"])
				require.Equal(t, 500.0, counts["mqtt_messages_received"])
				require.Equal(t, 500.0, counts["mqtt_delivery_duration"])
				require.Equal(t, map[bool]float64{false: 0, true: 500}[qos > 0], counts["mqtt_publish_duration"])
				require.Equal(t, 500.0, counts["mqtt_messages_expected"])
				require.Greater(t, counts["mqtt_bytes_sent"], 50_000.0)
				require.Greater(t, counts["mqtt_bytes_received"], 50_000.0)
				require.Zero(t, counts["mqtt_errors"])
			})
		}
	}
}

// deaf is a broker that says yes to a CONNECT and nothing more; it may not even read.
func deaf(t *testing.T, answersConnect, reads bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = client.Close() })
			if answersConnect {
				_, _ = client.Read(make([]byte, 1024))
				_, _ = client.Write([]byte{0x20, 3, 0, 0, 0})
			}
			if reads {
				go func() { _, _ = io.Copy(io.Discard, client) }()
			}
		}
	}()
	return "mqtt://" + listener.Addr().String()
}

func TestABrokerThatDoesNotAnswerHoldsNobodyForEver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answersConnect, reads bool
		script                string
		want                  string
	}{
		"CONNECT":   {false, true, `await client.connect()`, "timeout CONNECT: no answer in time"},
		"SUBSCRIBE": {true, true, `await client.connect(); await client.subscribe('a')`, "timeout SUBSCRIBE: no answer in time"},
		"PUBLISH":   {true, true, `await client.connect(); await client.publish('a', 'b', { qos: 1 })`, "timeout PUBLISH: no answer in time"},
		"a flood": {true, true, `await client.connect()
			const { failed, error } = await new Flow('deaf').publish(client, { topic: 'a', qos: 1, count: 5, window: 3 })
			throw { name: 'MQTTError', reason: failed, message: error }`, "5 PUBLISH: no answer in time"},
		"a flood that is not read": {true, false, `await client.connect()
			const { stalled } = await new Flow('deaf').publish(client, { topic: 'a', count: 100, size: 1e6 })
			throw { name: 'MQTTError', reason: stalled, message: client.connected() }`, "false false"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVU(t, map[string]any{"url": deaf(t, test.answersConnect, test.reads)})
			said := v.run(t, `
				const client = new Client({ url, clientId: 'deaf', timeoutSeconds: 0.3, keepAliveSeconds: 0 })
				try {
					`+test.script+`
				} catch (e) {
					say(e.reason + ' ' + e.message)
				}
				client.drop()
			`)
			require.Equal(t, []string{test.want}, said)
		})
	}
}
