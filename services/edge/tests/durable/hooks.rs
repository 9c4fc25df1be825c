//! Webhooks of tenants: real HTTP servers that accept, refuse, delay and end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use millrace_access::model::{Webhook, WebhookEvent};
use millrace_access::webhook::sign;
use millrace_edge::Config;
use millrace_layers::webhooks::{self, DeliveryRecord, WebhookId, WebhookState};
use millrace_layers::{Store, accounts, catalog};
use millrace_mqtt::QoS;
use millrace_mqtt::Version::V5;
use millrace_storage::{Database, Read, block_on};
use serde_json::Value;

use crate::common::{Client, Server};
use crate::steps::say;
use crate::tools::{eventually, metric};

const NAME: &str = "orders";
const KEY: &str = "a key that both know";

/// A tenant's service.
struct Service {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

type Answer = dyn Fn(&[Value]) -> u16 + Send + Sync;

struct Shared {
    /// The events of each request that was answered with success.
    taken: Mutex<Vec<Value>>,
    /// The events of all requests.
    asked: Mutex<Vec<Vec<Value>>>,
    answer: Box<Answer>,
}

impl Service {
    /// One that answers so. It checks the signature of each request.
    fn new(answer: impl Fn(&[Value]) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared =
            Arc::new(Shared { taken: Mutex::default(), asked: Mutex::default(), answer: Box::new(answer) });
        let stop = Arc::new(AtomicBool::new(false));
        let (serving, stopped) = (shared.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let serving = serving.clone();
                std::thread::spawn(move || serve(&serving, stream.unwrap()));
            }
        });
        Self { address, shared, stop, thread: Some(thread) }
    }

    fn taken(&self) -> Vec<Value> {
        lock(&self.shared.taken).clone()
    }

    fn asked(&self) -> Vec<Vec<Value>> {
        lock(&self.shared.asked).clone()
    }

    /// The payloads of the messages that it accepted, in order.
    fn payloads(&self) -> Vec<String> {
        let taken = self.taken();
        let said = taken.iter().filter_map(|event| event["data"]["payload"].as_str());
        said.filter(|text| !text.starts_with("ready")).map(Into::into).collect()
    }

    fn expect(&self, payloads: &[&str]) {
        eventually(|| self.payloads() == payloads, || format!("{:?}", self.payloads()));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One request a connection.
fn serve(shared: &Shared, stream: TcpStream) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut signature, mut line) = (0, String::new(), String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        let (name, value) = line.split_once(':').unwrap_or_default();
        match name.to_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap(),
            "millrace-signature" => signature = value.trim().to_owned(),
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let at: u64 = signature.strip_prefix("t=")?.split(',').next()?.parse().unwrap();
    assert_eq!(signature, sign(&KEY.into(), at, &body));
    let events = match serde_json::from_slice(&body).unwrap() {
        Value::Array(events) => events,
        event => vec![event],
    };
    lock(&shared.asked).push(events.clone());
    let status = (shared.answer)(&events);
    if (200..300).contains(&status) {
        lock(&shared.taken).extend(events);
    }
    let answer = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    reader.get_mut().write_all(answer.as_bytes()).ok()
}

fn webhook(service: &Service) -> Webhook {
    Webhook {
        name: NAME.into(),
        url: format!("http://{}/hook", service.address),
        events: vec![WebhookEvent::Message],
        filters: vec!["ready".into(), "plant/#".into(), "plant/+".into()],
        signing_key: Some(KEY.into()),
        ..Webhook::default()
    }
}

/// A store in which `default` has this webhook; and the broker's number.
fn store_with(webhook: &Webhook) -> (Database, u64) {
    let database = Database::memory();
    let store = Store::new(database.clone());
    let id = block_on(store.ensure_broker(catalog::DEFAULT)).unwrap().id;
    put(&database, id, webhook);
    (database, id)
}

/// Sets the webhook, as the control plane does.
fn put(database: &Database, id: u64, webhook: &Webhook) {
    let store = Store::new(database.clone());
    let put = store.run(async |tx| {
        accounts::webhooks(id).put(&tx, NAME.as_bytes(), webhook).await?;
        accounts::touch(&tx, id)
    });
    block_on(put).unwrap();
}

fn may_call(config: &mut Config) {
    config.outgoing.allow = vec!["127.0.0.0/8".parse().unwrap()];
    config.outgoing.plain_http = true;
}

/// A server whose webhook gets each message that is published from here on.
fn start(database: &Database, service: &Service, change: impl FnOnce(&mut Config)) -> Server {
    let server = Server::on(database, |config| {
        may_call(config);
        change(config);
    });
    expect_ready(&server, service);
    server
}

fn expect_ready(server: &Server, service: &Service) {
    let before = service.asked().len();
    let is_ready = || {
        say(server, QoS::AtLeastOnce, "ready", &["ready?"]);
        service.asked().len() > before
    };
    eventually(is_ready, || "nothing is told".into());
    // Events are sent in order, so all earlier ones come before this.
    let last = format!("ready {before}");
    say(server, QoS::AtLeastOnce, "ready", &[&last]);
    let is_last = |event: &Value| event["data"]["payload"] == *last;
    eventually(|| service.taken().iter().any(is_last), || format!("{:?}", service.taken()));
}

fn state(database: &Database, id: u64) -> WebhookState {
    let hook = WebhookId { broker: id, name: NAME };
    let store = Store::new(database.clone());
    block_on(store.run(async |tx| webhooks::status(&tx, hook).await)).unwrap().0
}

fn deliveries(database: &Database, id: u64) -> Vec<DeliveryRecord> {
    let hook = WebhookId { broker: id, name: NAME };
    let store = Store::new(database.clone());
    block_on(store.run(async |tx| webhooks::deliveries(&tx, hook).await)).unwrap()
}

fn ids(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["id"].as_str().unwrap()).collect()
}

#[test]
fn messages_of_every_qos_are_told_in_order_each_once() {
    for batch_max in [1, 10] {
        let service = Service::new(|_| 204);
        let (database, _) = store_with(&Webhook { batch_max, ..webhook(&service) });
        let server = start(&database, &service, |_| {});
        for (number, qos) in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].into_iter().enumerate() {
            for count in 0..5 {
                say(&server, qos, "plant/7", &[&format!("{number}.{count}")]);
            }
            say(&server, qos, "elsewhere", &["not told"]);
        }
        let all: Vec<String> =
            (0..3).flat_map(|number| (0..5).map(move |count| format!("{number}.{count}"))).collect();
        // Messages with QoS 0 are on their way while the next client publishes already.
        eventually(|| service.payloads().len() >= all.len(), || format!("{:?}", service.payloads()));
        let mut told = service.payloads();
        told.sort();
        assert_eq!(told, all);
        let taken = service.taken();
        assert_eq!(ids(&taken).into_iter().collect::<BTreeSet<_>>().len(), taken.len());
        let message = taken.iter().find(|event| event["data"]["payload"] == "1.3").unwrap();
        assert_eq!((&message["subject"], &message["data"]["qos"]), (&"plant/7".into(), &1.into()));
        assert_eq!(
            (&message["source"], &message["specversion"]),
            (&"/brokers/default".into(), &"1.0".into())
        );
    }
}

#[test]
fn what_clients_do_is_told() {
    let service = Service::new(|_| 200);
    let events = vec![WebhookEvent::Message, WebhookEvent::Connect, WebhookEvent::Disconnect];
    let (database, _) = store_with(&Webhook { events, ..webhook(&service) });
    let server = start(&database, &service, |_| {});
    let of_pump = |kind: &str| {
        let is_it = |event: &Value| event["type"] == kind && event["subject"] == "pump-7";
        service.taken().into_iter().filter(is_it).map(|event| event["data"].clone()).collect::<Vec<_>>()
    };
    Client::connect(&server, V5, "pump-7").disconnect();
    Client::connect(&server, V5, "pump-7").cut();
    eventually(|| of_pump("millrace.client.disconnected").len() == 2, || format!("{:?}", service.taken()));
    let connected = of_pump("millrace.client.connected");
    assert_eq!(connected.len(), 2);
    assert_eq!((&connected[0]["protocol"], &connected[0]["user"]), (&"5.0".into(), &Value::Null));
    let reasons = of_pump("millrace.client.disconnected");
    assert_eq!((&reasons[0]["reason"], &reasons[1]["reason"]), (&"client".into(), &"lost".into()));
}

#[test]
fn a_client_cannot_pretend_that_something_has_happened() {
    let service = Service::new(|_| 200);
    let events = vec![WebhookEvent::Message, WebhookEvent::Connect];
    let (database, _) = store_with(&Webhook { events, ..webhook(&service) });
    let server = start(&database, &service, |_| {});
    say(&server, QoS::AtMostOnce, "$SYS/webhooks/connect", &["{\"client_id\":\"eve\"}"]);
    say(&server, QoS::AtLeastOnce, "plant", &["later"]);
    service.expect(&["later"]);
    assert!(service.taken().iter().all(|event| event["subject"] != "eve"));
}

#[test]
fn a_service_that_fails_gets_the_same_events_again_in_order() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let service = Service::new(move |_| if failing.load(Ordering::SeqCst) { 503 } else { 200 });
    let (database, id) = store_with(&webhook(&service));
    let server = start(&database, &service, |_| {});
    fails.store(true, Ordering::SeqCst);
    say(&server, QoS::AtLeastOnce, "plant", &["1", "2", "3"]);
    let first = || service.asked().into_iter().filter(|events| events[0]["data"]["payload"] == "1").count();
    eventually(|| first() >= 2, || format!("{:?}", service.asked()));
    let failed = state(&database, id);
    assert!(failed.attempts >= 1 && failed.last_failure.unwrap().status == Some(503));
    fails.store(false, Ordering::SeqCst);
    service.expect(&["1", "2", "3"]);
    let asked: Vec<Value> = service.asked().into_iter().flatten().collect();
    let of_first: BTreeSet<&str> = asked
        .iter()
        .filter(|event| event["data"]["payload"] == "1")
        .map(|e| e["id"].as_str().unwrap())
        .collect();
    assert_eq!(of_first.len(), 1, "one event has one id");
    eventually(|| state(&database, id).attempts == 0, || "it still fails".into());
    assert!(metric(&server, "millrace_webhook_calls_total", "result=\"failed\"") >= 2);
    let is_in_order = |log: &[DeliveryRecord]| log.iter().map(|one| one.number).is_sorted_by(|a, b| a > b);
    let of_first = |log: Vec<DeliveryRecord>| {
        let first = asked.iter().find(|event| event["data"]["payload"] == "1").unwrap();
        log.into_iter().filter(|one| first["id"] == *one.event).collect::<Vec<_>>()
    };
    let log = deliveries(&database, id);
    assert!(is_in_order(&log) && log.len() <= 100, "{log:?}");
    let [.., first] = &of_first(log)[..] else { panic!("the first attempt is not in the log") };
    assert_eq!((first.attempt, first.status, first.events), (1, Some(503), 1));
    assert!(first.at_ms > 0 && first.error.as_ref().is_some_and(|error| error.contains("503")), "{first:?}");
    assert_eq!(first.kind, "millrace.message.published");
    let succeeded = |one: &DeliveryRecord| one.status == Some(200) && one.error.is_none() && one.attempt > 1;
    assert!(of_first(deliveries(&database, id)).first().is_some_and(succeeded));
}

#[test]
fn what_is_refused_for_good_is_a_dead_letter_and_the_next_one_is_told() {
    for batch_max in [1, 10] {
        let service =
            Service::new(
                |events| if events.iter().any(|event| event["data"]["payload"] == "2") { 410 } else { 200 },
            );
        let (database, id) = store_with(&Webhook { batch_max, ..webhook(&service) });
        let server = start(&database, &service, |_| {});
        say(&server, QoS::AtLeastOnce, "plant", &["1", "2", "3"]);
        service.expect(&["1", "3"]);
        eventually(|| state(&database, id).dead == 1, || format!("{:?}", state(&database, id)));
        let hook = WebhookId { broker: id, name: NAME };
        let store = Store::new(database.clone());
        let letters =
            block_on(store.run(async |tx| webhooks::dead_letters(&tx, hook, None, 10).await)).unwrap().0;
        let event: Value = serde_json::from_slice(&letters[0].event).unwrap();
        assert_eq!((letters.len(), &event["data"]["payload"]), (1, &"2".into()));
        assert_eq!(letters[0].failure.as_ref().unwrap().status, Some(410));
    }
}

#[test]
fn an_event_is_told_again_under_its_id_when_a_server_ends_before_it_has_noted_the_answer() {
    let holds = Arc::new(AtomicBool::new(false));
    let held = holds.clone();
    // The service has it; the answer does not come.
    let service = Service::new(move |_| {
        while held.load(Ordering::SeqCst) {
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
        200
    });
    let (database, _) = store_with(&webhook(&service));
    let server = start(&database, &service, |_| {});
    service.expect(&[]);
    holds.store(true, Ordering::SeqCst);
    say(&server, QoS::AtLeastOnce, "plant", &["once or twice"]);
    let asked = || {
        let asked: Vec<Value> = service.asked().into_iter().flatten().collect();
        asked.into_iter().filter(|event| event["data"]["payload"] == "once or twice").collect::<Vec<_>>()
    };
    eventually(|| asked().len() == 1, || format!("{:?}", asked()));
    drop(server);
    holds.store(false, Ordering::SeqCst);
    let _server = Server::on(&database, may_call);
    eventually(|| asked().len() == 2, || format!("{:?}", asked()));
    assert_eq!(asked()[0]["id"], asked()[1]["id"]);
}

#[test]
fn of_several_pods_one_tells_what_is_published_on_all() {
    let service = Service::new(|_| 200);
    let (database, _) = store_with(&webhook(&service));
    let pods = ["one", "two"].map(|name| start(&database, &service, |config| config.pod = Some(name.into())));
    let mut all = BTreeSet::new();
    for count in 0..20 {
        for (number, pod) in pods.iter().enumerate() {
            let text = format!("{number}.{count}");
            say(pod, QoS::AtLeastOnce, "plant", &[&text]);
            all.insert(text);
        }
    }
    let told = || service.payloads().into_iter().collect::<BTreeSet<_>>();
    eventually(|| told() == all, || format!("{:?}", service.payloads()));
    assert_eq!(service.payloads().len(), all.len(), "each once");
    // One pod is gone: the other one continues, at the latest when the lease is over.
    let [one, two] = pods;
    drop(one);
    say(&two, QoS::AtLeastOnce, "plant", &["after"]);
    eventually(|| told().contains("after"), || format!("{:?}", service.payloads()));
}

#[test]
fn a_queue_over_its_bound_loses_the_oldest_and_counts_them() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let service = Service::new(move |_| if failing.load(Ordering::SeqCst) { 500 } else { 200 });
    let (database, id) = store_with(&webhook(&service));
    let server = start(&database, &service, |config| config.limits.queue_messages_max = 10);
    eventually(|| state(&database, id).delivered as usize == service.taken().len(), || "unsettled".into());
    let before = state(&database, id).delivered;
    fails.store(true, Ordering::SeqCst);
    for number in 0..50 {
        say(&server, QoS::AtLeastOnce, "plant/1", &[&number.to_string()]);
    }
    let trimmed = || metric(&server, "millrace_messages_trimmed_total", "");
    // It is looked every few seconds, and some go each time.
    for least in [10, 20, 30, 40] {
        eventually(|| trimmed() >= least, || trimmed().to_string());
    }
    fails.store(false, Ordering::SeqCst);
    eventually(
        || service.payloads().last().is_some_and(|last| last == "49"),
        || format!("{:?}", service.payloads()),
    );
    let is_settled = || state(&database, id).delivered as usize == service.taken().len();
    eventually(is_settled, || format!("{:?}", state(&database, id)));
    // "plant/#" and "plant/+" have a queue each, and lose one after the other.
    let after = state(&database, id);
    assert!(after.delivered - before <= 20 && after.lost >= 40, "{after:?}");
    let told: Vec<u32> = service.payloads().iter().map(|text| text.parse().unwrap()).collect();
    assert!(told.is_sorted_by(|one, next| one < next), "{told:?}");
}

#[test]
fn a_broker_or_webhook_that_goes_is_told_nothing_more() {
    let fails = Arc::new(AtomicBool::new(false));
    let failing = fails.clone();
    let service = Service::new(move |_| if failing.load(Ordering::SeqCst) { 500 } else { 200 });
    let (database, id) = store_with(&webhook(&service));
    let server = start(&database, &service, |_| {});
    // Disabled: what waits goes, and is counted.
    fails.store(true, Ordering::SeqCst);
    say(&server, QoS::AtLeastOnce, "plant", &["waits"]);
    put(&database, id, &Webhook { enabled: false, ..webhook(&service) });
    eventually(|| state(&database, id).lost > 0, || format!("{:?}", state(&database, id)));
    fails.store(false, Ordering::SeqCst);
    put(&database, id, &webhook(&service));
    expect_ready(&server, &service);
    fails.store(true, Ordering::SeqCst);
    say(&server, QoS::AtLeastOnce, "plant", &["of a broker that goes"]);
    let store = Store::new(database.clone());
    let condemned = store.run(async |tx| {
        let broker = catalog::get(&tx, catalog::DEFAULT, Read::Serializable).await?.unwrap();
        catalog::condemn(&tx, &broker, 1)
    });
    block_on(condemned).unwrap();
    let queued = || block_on(store.run(async |tx| webhooks::queued(&tx, None, 9).await)).unwrap();
    eventually(|| queued().is_empty(), || format!("{:?}", queued()));
    assert!(service.payloads().iter().all(|text| !text.contains("goes") && text != "waits"));
}

#[test]
fn the_end_of_a_pod_is_told_of_the_clients_it_had() {
    let service = Service::new(|_| 200);
    let events = vec![WebhookEvent::Message, WebhookEvent::Disconnect];
    let (database, id) = store_with(&Webhook { events, ..webhook(&service) });
    drop(start(&database, &service, |_| {}));
    // The session that a killed process has left in the store.
    let store = Store::new(database.clone());
    let attach = millrace_layers::sessions::Attach {
        owner: "edge".into(),
        clean: true,
        expiry_s: 100,
        now_ms: 1,
        will: None,
        details: None,
    };
    let session = millrace_layers::sessions::SessionId { broker: id, client: b"pump-7" };
    block_on(store.attach(session, &attach)).unwrap();
    let _server = Server::on(&database, may_call);
    let told = || service.taken().into_iter().find(|event| event["subject"] == "pump-7");
    eventually(|| told().is_some(), || format!("{:?}", service.taken()));
    assert_eq!(told().unwrap()["data"]["reason"], "server_lost");
}

#[test]
fn events_that_wait_are_counted_until_they_are_delivered() {
    let is_up = Arc::new(AtomicBool::new(true));
    let answers = is_up.clone();
    let service = Service::new(move |_| if answers.load(Ordering::SeqCst) { 204 } else { 503 });
    let (database, id) = store_with(&webhook(&service));
    let server = start(&database, &service, |_| {});
    let waiting = || metric(&server, "millrace_webhook_events_waiting", "");
    eventually(|| waiting() == 0, || format!("{} wait", waiting()));
    is_up.store(false, Ordering::SeqCst);
    say(&server, QoS::AtLeastOnce, "plant/7", &["waits"]);
    eventually(|| waiting() > 0, || "no event waits".into());
    let age_s = || metric(&server, "millrace_webhook_oldest_event_seconds", "");
    eventually(|| age_s() > 0, || "it has no age".into());
    let bytes = || metric(&server, "millrace_webhook_queue_bytes", "");
    eventually(|| bytes() > 0, || "it has no bytes".into());
    is_up.store(true, Ordering::SeqCst);
    let hook = WebhookId { broker: id, name: NAME };
    block_on(Store::new(database.clone()).run(async |tx| hook.retry_now(&tx).await)).unwrap();
    eventually(|| waiting() == 0 && age_s() == 0 && bytes() == 0, || format!("{} wait", waiting()));
}
