//! Attacks on the HTTP port: idle and slow connections, sign-ins, and lists that cost much. Most have no check of their
//! own: they fail by the limits of `AttackLimits`, which all attacks have, and note figures for the report.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Attack;
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::hostile::client::{Client, dial};
use crate::hostile::http::{self, Answer};
use crate::hostile::packets::{self, Connect, DISCONNECT};
use crate::hostile::ring::{HOSTILE_NETWORK, Ring};
use crate::hostile::server::Setup;
use crate::hostile::traffic::{finish, messages};
use crate::hostile::verdict::{AttackLimits, STORE_LIMITS, USUAL_LIMITS};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_stranger("http-idle", "8,000 idle connections to the HTTP port", |ring| {
        http_held(ring, 8_000, "")
    }),
    Attack::by_stranger(
        "http-slow",
        "1,000 requests to the HTTP port whose head of 8 kB never ends",
        |ring| http_held(ring, 1_000, &format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(8_000))),
    ),
    Attack::by_stranger("http-body-drip", "50 sign-ins whose bodies come byte by byte", http_body_drip)
        .limits(AttackLimits { peak_mib: 64, ..USUAL_LIMITS }),
    Attack::by_stranger("sign-in-flood", "200 sign-ins at once with wrong passwords", sign_in_flood)
        .in_short_run(),
    Attack::by_stranger("sign-up-flood", "200 sign-ups at once", sign_up_flood).not_in_soak(),
    Attack::by_tenant("session-lists", "12 and 60 lists of 3,000 sessions at once", session_lists)
        .limits(AttackLimits { stays_mib: 32, ..USUAL_LIMITS })
        .not_in_soak(),
    Attack::by_tenant(
        "ban-many-filters",
        "a ban of 180 clients with 345 subscriptions each, three times",
        ban_many_filters,
    )
    .limits(AttackLimits { stays_mib: 32, ..USUAL_LIMITS })
    .in_short_run()
    .not_in_soak(),
    Attack::by_tenant(
        "client-views",
        "the view of a client with 60,000 subscriptions, again and again for three seconds",
        client_views,
    )
    .limits(AttackLimits { stays_mib: 32, ..USUAL_LIMITS })
    .not_in_soak(),
    Attack::by_tenant(
        "silent-webhook",
        "a webhook that is never answered, and 20,000 messages for it",
        silent_webhook,
    )
    .with(|| Setup { arguments: &["--outgoing-allow=127.0.0.0/8"], ..Setup::default() })
    .limits(STORE_LIMITS),
    Attack::by_stranger("metrics-flood", "20 threads that read /metrics for three seconds", metrics_flood),
];

/// Memory that a connection without a request may take, bytes.
const CONNECTION_BYTES: usize = 8_192;
/// Buffer that hyper reserves for the next read of a connection, bytes.
const HTTP_READ_BYTES: usize = 8_192;

fn http_held(ring: &Ring<'_>, count: usize, bytes: &str) -> Outcome<()> {
    let before_kb = ring.server.memory().rss_kb;
    let mut streams: Vec<TcpStream> = Vec::new();
    for number in 0..count {
        let Ok(mut stream) = dial(Ring::address(number), ring.server.http) else { break };
        let _ = stream.write_all(bytes.as_bytes());
        streams.push(stream);
    }
    clock::pause_ms(1_000);
    let room = if bytes.is_empty() { 0 } else { HTTP_READ_BYTES };
    let most = (CONNECTION_BYTES + bytes.len() + room) as f64;
    ring.check_bytes_each("memory of a stranger", before_kb, streams.len(), most);
    let begun_ns = clock::now_ns();
    let status = http::get(ring.server.http, "/healthz").map(|answer| answer.status);
    let waited = clock::ns_seconds(clock::now_ns() - begun_ns);
    ring.note(format!("/healthz meanwhile: {status:?}"));
    ring.at_most("/healthz waits", if status == Some(200) { waited } else { 60.0 }, 1.0, "s");
    Ok(())
}

fn http_body_drip(ring: &Ring<'_>) -> Outcome<()> {
    let head = "POST /api/v1/sign-in HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                Content-Length: 60000\r\n\r\n";
    let mut streams: Vec<TcpStream> = Vec::new();
    for number in 0..50 {
        let mut stream = dial(Ring::address(number), ring.server.http).during("opening a request")?;
        stream.write_all(head.as_bytes()).during("sending a request")?;
        streams.push(stream);
    }
    let mut sent = 0;
    for _ in 0..1_500 {
        sent += streams.iter_mut().filter_map(|stream| stream.write_all(b" ").ok()).count();
        clock::pause_ms(5);
    }
    ring.note(format!("{sent} bytes sent"));
    Ok(())
}

fn sign_in_flood(ring: &Ring<'_>) -> Outcome<()> {
    let _ = sign_up(ring, "victim");
    let statuses = AtomicUsize::new(0);
    ring.crowd(ring.full_or_short(200, 60), |number| {
        let json = format!("{{\"email\":\"victim@example.org\",\"password\":\"guess number {number}\"}}");
        let answer = http::send(ring.server.http, "POST", "/api/v1/sign-in", "", &json);
        statuses.fetch_add(usize::from(answer.is_some_and(|answer| answer.status == 429)), Ordering::Relaxed);
    });
    ring.note(format!("{} were told to wait", statuses.into_inner()));
    Ok(())
}

fn sign_up_flood(ring: &Ring<'_>) -> Outcome<()> {
    let made = AtomicUsize::new(0);
    ring.crowd(200, |number| {
        made.fetch_add(usize::from(sign_up(ring, &format!("person-{number}")).is_ok()), Ordering::Relaxed);
    });
    ring.note(format!("{} accounts were made", made.into_inner()));
    Ok(())
}

/// A tenant with an account, and a broker that accepts anonymous clients.
struct Tenant {
    headers: String,
    broker_path: String,
    broker_name: String,
}

fn sign_up(ring: &Ring<'_>, name: &str) -> Outcome<Answer> {
    let json = format!(
        "{{\"email\":\"{name}@example.org\",\"password\":\"a sentence for nobody\",\"name\":\"{name}\"}}"
    );
    let answer = http::send(ring.server.http, "POST", "/api/v1/sign-up", "", &json);
    answer
        .filter(|answer| answer.status < 300)
        .ok_or_else(|| Failure::new(format!("{name} could not sign up")))
}

impl Tenant {
    fn new(ring: &Ring<'_>, name: &str) -> Outcome<Self> {
        let missing = |what: &str| Failure::new(format!("the API does not give {what}"));
        let account = sign_up(ring, name)?;
        let csrf = account.field("csrf_token").ok_or_else(|| missing("a token"))?;
        let headers = format!("Cookie: {}\r\nX-CSRF-Token: {csrf}\r\n", account.cookies());
        let ask = |method: &str, path: &str, json: &str| {
            let answer = http::send(ring.server.http, method, path, &headers, json);
            answer.filter(|answer| answer.status < 300).ok_or_else(|| missing(path))
        };
        let organisations = ask("GET", "/api/v1/organisations", "")?;
        let id = organisations.field("id").ok_or_else(|| missing("an organisation"))?;
        let brokers = format!("/api/v1/organisations/{id}/brokers");
        let made = ask("POST", &brokers, &format!("{{\"display_name\":\"{name}\"}}"))?;
        let broker_name = made.field("name").ok_or_else(|| missing("a broker"))?.to_owned();
        let broker_path = format!("{brokers}/{broker_name}");
        let changing = format!("{headers}If-Match: *\r\n");
        let access = format!("{broker_path}/access");
        let changed = http::send(ring.server.http, "PUT", &access, &changing, "{\"anonymous\":true}");
        changed.filter(|answer| answer.status < 300).ok_or_else(|| missing("access to everybody"))?;
        Ok(Self { headers, broker_path, broker_name })
    }
}

fn session_lists(ring: &Ring<'_>) -> Outcome<()> {
    let tenant = Tenant::new(ring, "lister")?;
    let made = AtomicUsize::new(0);
    ring.crowd(4, |thread| {
        for number in (thread..3_000).step_by(4) {
            let connect = Connect::new(&tenant.broker_name, &format!("session-{number}")).persistent(3_600);
            let Ok(mut client) = Client::connect(Ring::address(number), ring.server.mqtt, &connect) else {
                continue;
            };
            client.send(&packets::DISCONNECT_NORMALLY);
            made.fetch_add(1, Ordering::Relaxed);
        }
    });
    ring.note(format!("{} sessions", made.into_inner()));
    for parallel in [12, 60] {
        let (listed, refused, slowest) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        ring.crowd(parallel, |_| {
            let begun_ns = clock::now_ns();
            let path = format!("{}/sessions?limit=100", tenant.broker_path);
            let answer = http::send(ring.server.http, "GET", &path, &tenant.headers, "");
            let is_list = answer.as_ref().is_some_and(|answer| answer.status == 200);
            let counter = if is_list { &listed } else { &refused };
            if counter.fetch_add(1, Ordering::Relaxed) == 0 && !is_list {
                ring.note(format!("refused with {:?}", answer.map(|answer| answer.status)));
            }
            slowest.fetch_max(((clock::now_ns() - begun_ns) / 1_000_000) as usize, Ordering::Relaxed);
        });
        ring.note(format!(
            "{parallel} at once: {} listed, {} refused, the slowest after {} ms",
            listed.into_inner(),
            refused.into_inner(),
            slowest.into_inner()
        ));
    }
    Ok(())
}

fn ban_many_filters(ring: &Ring<'_>) -> Outcome<()> {
    let tenant = Tenant::new(ring, "banner")?;
    let filters: Vec<String> = (0..345).map(|number| format!("f/{number}")).collect();
    let ban = format!("{}/bans/all", tenant.broker_path);
    let ask = |method: &str, condition: &str, json: &str| {
        let headers = format!("{}{condition}: *\r\n", tenant.headers);
        http::send(ring.server.http, method, &ban, &headers, json).map(|answer| answer.status)
    };
    for _ in 0..3 {
        let connect = |number: usize| {
            let connect = Connect::new(&tenant.broker_name, &format!("banned-{number}"));
            Client::connect(Ring::address(number), ring.server.mqtt, &connect).ok()
        };
        let mut clients: Vec<Client> = (0..180).map_while(connect).collect();
        let granted: usize = clients.iter_mut().map(|client| client.subscribe(&filters, 0)).sum();
        let banned = ask("PUT", "If-None-Match", &format!("{{\"address\":\"{HOSTILE_NETWORK}\"}}"));
        let closed = clients.iter_mut().filter_map(|client| client.wait_for(DISCONNECT, 10.0)).count();
        let lifted = ask("DELETE", "If-Match", "");
        ring.note(format!("{granted} filters granted, ban {banned:?}, {closed} closed, lifted {lifted:?}"));
        ring.granted(granted, 180 * filters.len());
        ring.at_least("clients that a ban closes", closed as f64, clients.len() as f64, "");
        clock::pause_ms(1_500);
    }
    Ok(())
}

fn client_views(ring: &Ring<'_>) -> Outcome<()> {
    let tenant = Tenant::new(ring, "viewer")?;
    let mut client =
        Client::connect(Ring::address(0), ring.server.mqtt, &Connect::new(&tenant.broker_name, "seen"))?;
    let filters: Vec<String> = (0..60_000).map(|number| format!("{}{number:05}", "f".repeat(500))).collect();
    let granted: usize = filters.chunks(1_000).map(|some| client.subscribe(some, 0)).sum();
    let path = format!("{}/clients/seen", tenant.broker_path);
    let (until_ns, mut seen) = (clock::now_ns() + clock::seconds_ns(3.0), 0);
    while clock::now_ns() < until_ns {
        let answer = http::send(ring.server.http, "GET", &path, &tenant.headers, "");
        seen += usize::from(answer.is_some_and(|answer| answer.status == 200));
    }
    ring.note(format!("{granted} filters granted, seen {seen} times"));
    ring.granted(granted, filters.len());
    ring.at_least("answers", seen as f64, 1.0, "");
    Ok(())
}

fn silent_webhook(ring: &Ring<'_>) -> Outcome<()> {
    // Connections stay in the listener's backlog, because the test accepts none.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).during("listening")?;
    let address = listener.local_addr().during("listening")?;
    let tenant = Tenant::new(ring, "hooked")?;
    let json =
        format!("{{\"url\":\"http://{address}/\",\"events\":[\"message\",\"connect\"],\"filters\":[\"#\"]}}");
    let made = http::send(
        ring.server.http,
        "PUT",
        &format!("{}/webhooks/silent", tenant.broker_path),
        &format!("{}If-None-Match: *\r\n", tenant.headers),
        &json,
    );
    if made.as_ref().is_none_or(|answer| answer.status >= 300) {
        return Err(Failure::new(format!(
            "no webhook was made: {}",
            made.map_or(String::new(), |answer| answer.text)
        )));
    }
    let mut publisher = ring.client_with(&Connect::new(&tenant.broker_name, "publisher"))?;
    for _ in 0..20 {
        publisher.send(&messages("hooked", 1_000, 200));
    }
    let is_read = finish(&mut publisher, 30.0);
    clock::pause_ms(2_000);
    ring.note(format!("all publishes read: {is_read}"));
    Ok(())
}

fn metrics_flood(ring: &Ring<'_>) -> Outcome<()> {
    let until_ns = clock::now_ns() + clock::seconds_ns(3.0);
    let read = AtomicUsize::new(0);
    ring.crowd(20, |_| {
        while clock::now_ns() < until_ns {
            read.fetch_add(
                usize::from(http::get(ring.server.admin, "/metrics").is_some()),
                Ordering::Relaxed,
            );
        }
    });
    ring.note(format!("{} times", read.into_inner()));
    Ok(())
}
