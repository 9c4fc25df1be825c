//! Requests as clients send them, right ones and wrong ones.

use super::*;

const MAX: usize = 8192;

fn parse(buf: &[u8], head_bytes_max: usize) -> Result<Option<Upgrade>, HandshakeRefusal> {
    super::parse(buf, head_bytes_max, &Origins::Any, false)
}

/// The request of RFC 6455 section 1.2, for MQTT; `edit` is (what, by what).
fn request(edit: (&str, &str)) -> String {
    let whole = "GET /mqtt HTTP/1.1\r\nHost: server.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: http://example.com\r\n\
                 Sec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n";
    assert!(whole.contains(edit.0));
    whole.replace(edit.0, edit.1)
}

#[test]
//= [MQTT-6.0.0-4] v5 v3.1.1
fn the_example_of_the_rfc_is_accepted() {
    let bytes = request(("", ""));
    let upgrade = parse(bytes.as_bytes(), MAX).unwrap().unwrap();
    assert_eq!(upgrade.head_len, bytes.len());
    assert_eq!(
        String::from_utf8(upgrade.response).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    );
}

#[test]
fn bytes_after_the_head_stay_in_the_buffer() {
    let mut bytes = request(("", "")).into_bytes();
    let head_len = bytes.len();
    bytes.extend_from_slice(&[0x82, 0x80]);
    assert_eq!(parse(&bytes, MAX).unwrap().unwrap().head_len, head_len);
}

#[test]
fn variants_that_are_as_good() {
    let cases = [
        ("/mqtt", "/mqtt?token=1"),
        ("/mqtt", "http://server.example.com/mqtt?a"),
        ("Upgrade: websocket", "uPGRADE:   WebSocket  "),
        ("Connection: Upgrade", "Connection: keep-alive, upgrade"),
        ("Connection: Upgrade", "Connection: keep-alive\r\nConnection: upgrade"),
        // The key of RFC 6455 section 4.1, whose last character has a bit too many.
        ("dGhlIHNhbXBsZSBub25jZQ==", "AQIDBAUGBwgJCgsMDQ4PEC=="),
        ("Origin: http://example.com", "Sec-WebSocket-Extensions: permessage-deflate"),
    ];
    for edit in cases {
        let upgrade = parse(request(edit).as_bytes(), MAX).unwrap().unwrap();
        let response = String::from_utf8(upgrade.response).unwrap();
        assert!(response.starts_with("HTTP/1.1 101 ") && !response.contains("Extensions"), "{edit:?}");
    }
}

#[test]
//= [MQTT-6.0.0-3] v5 v3.1.1
//= [MQTT-6.0.0-4] v5 v3.1.1
fn the_subprotocol_is_mqtt_whenever_it_is_offered() {
    let offer = "Sec-WebSocket-Protocol: mqtt";
    for (offered, chosen) in [
        ("Sec-WebSocket-Protocol: mqttv3.1, mqtt", Some("mqtt")),
        ("Sec-WebSocket-Protocol: mqttv3.1\r\nSec-WebSocket-Protocol: x,mqtt", Some("mqtt")),
        ("Sec-WebSocket-Protocol: mqttv3.1", Some("mqttv3.1")),
        ("Sec-WebSocket-Protocol: chat", None),
        ("Sec-WebSocket-Protocol: mqttx", None),
        ("X: mqtt", None),
    ] {
        match (parse(request((offer, offered)).as_bytes(), MAX), chosen) {
            (Ok(Some(upgrade)), Some(chosen)) => {
                let line = format!("\r\nSec-WebSocket-Protocol: {chosen}\r\n\r\n");
                assert!(String::from_utf8(upgrade.response).unwrap().ends_with(&line), "{offered}");
            }
            (Err(refusal), None) => assert_eq!(refusal.reason, NO_PROTOCOL.reason, "{offered}"),
            other => panic!("{offered}: {other:?}"),
        }
    }
}

#[test]
fn a_refusal_is_a_whole_answer_that_says_what_to_do() {
    for (edit, want) in [
        (("GET", "POST"), &NOT_GET),
        (("HTTP/1.1", "HTTP/1.0"), &OLD_HTTP),
        (("Host: server.example.com", "X: y"), &NO_HOST),
        (("Host: server.example.com", "Host: a\r\nHost: b"), &NO_HOST),
        (("/mqtt", "/"), &NOT_FOUND),
        (("/mqtt", "/mqtt/x"), &NOT_FOUND),
        (("/mqtt", "http://server.example.com"), &NOT_FOUND),
        (("Upgrade: websocket", "X: y"), &NO_UPGRADE),
        (("Connection: Upgrade", "Connection: keep-alive"), &NO_UPGRADE),
        (("Version: 13", "Version: 8"), &OTHER_VERSION),
        (("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="), &BAD_KEY),
        (("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZWFhYWFhYWFhYQ=="), &BAD_KEY),
        (("dGhlIHNhbXBsZSBub25jZQ==", "no base64"), &BAD_KEY),
        (("GET", "\u{10}\u{18}"), &NOT_HTTP),
        (("HTTP/1.1", "HTTP/2.0"), &NOT_HTTP),
        (("Origin: http://example.com", "a: b\r\n".repeat(70).trim_end()), &TOO_LARGE),
    ] {
        let refusal = parse(request(edit).as_bytes(), MAX).unwrap_err();
        assert_eq!(refusal.reason, want.reason, "{edit:?}");
        let response = String::from_utf8(refusal.response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {}\r\nConnection: close", want.status)), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(want.status.starts_with("426"), head.contains("Sec-WebSocket-Version: 13"), "{head}");
        assert_eq!(body.trim_end(), want.text);
    }
}

#[test]
fn a_head_cut_anywhere_waits_for_the_rest_and_a_large_one_does_not() {
    let bytes = request(("", ""));
    for len in 0..bytes.len() {
        assert_eq!(parse(&bytes.as_bytes()[..len], bytes.len()), Ok(None), "{len}");
    }
    assert!(parse(bytes.as_bytes(), bytes.len()).unwrap().is_some());
    let reason = |r: Result<_, HandshakeRefusal>| r.unwrap_err().reason;
    assert_eq!(reason(parse(bytes.as_bytes(), bytes.len() - 1)), TOO_LARGE.reason);
    assert_eq!(reason(parse(&bytes.as_bytes()[..100], 100)), TOO_LARGE.reason);
}

#[test]
fn pages_of_other_hosts_are_refused_unless_they_are_allowed() {
    let these = || Origins::These(vec!["https://app.example".into()]);
    let cases = [
        ("server.example.com", "http://server.example.com", Origins::SameHost, true),
        ("server.example.com:8083", "https://SERVER.example.com:8443", Origins::SameHost, true),
        ("[::1]:8083", "http://[::1]", Origins::SameHost, true),
        ("[::1]:8083", "http://[::2]:8083", Origins::SameHost, false),
        ("server.example.com", "http://example.com", Origins::SameHost, false),
        ("server.example.com", "http://evil-server.example.com", Origins::SameHost, false),
        ("server.example.com", "http://server.example.com.evil.example", Origins::SameHost, false),
        ("server.example.com", "null", Origins::SameHost, false),
        ("server.example.com", "", Origins::SameHost, false),
        ("server.example.com", "https://app.example", these(), true),
        ("server.example.com", "http://server.example.com", these(), true),
        ("server.example.com", "http://app.example", these(), false),
        ("server.example.com", "null", Origins::Any, true),
    ];
    for (host, origin, origins, allowed) in cases {
        let request = request(("http://example.com", origin)).replace("server.example.com", "HOST");
        let request = request.replacen("HOST", host, 1);
        let request = request.replace("HOST", "server.example.com");
        let parsed = super::parse(request.as_bytes(), MAX, &origins, false);
        assert_eq!(parsed.is_ok(), allowed, "{host} {origin} {origins:?}");
    }
    let no_page = request(("Origin: http://example.com\r\n", ""));
    assert!(super::parse(no_page.as_bytes(), MAX, &Origins::SameHost, false).is_ok());
}

/// The owner of `evil.example` gives it the address 127.0.0.1 once a browser has loaded its page.
#[test]
fn at_a_loopback_address_pages_of_other_names_are_refused() {
    let these = || Origins::These(vec!["https://app.example".into()]);
    for (host, origin, origins, allowed) in [
        ("evil.example:8083", "http://evil.example:8000", Origins::SameHost, false),
        ("evil.example:8083", "http://evil.example:8000", these(), false),
        ("evil.example:8083", "http://evil.example:8000", Origins::Any, true),
        ("localhost.evil.example", "http://localhost.evil.example", Origins::SameHost, false),
        ("localhost:8083", "http://localhost:8080", Origins::SameHost, true),
        ("127.0.0.1:8083", "http://127.0.0.1:8080", Origins::SameHost, true),
        ("[::1]:8083", "http://[::1]:8080", Origins::SameHost, true),
        ("mqtt.example", "https://app.example", these(), true),
    ] {
        let request = request(("http://example.com", origin)).replacen("server.example.com", host, 1);
        let parsed = super::parse(request.as_bytes(), MAX, &origins, true);
        assert_eq!(parsed.is_ok(), allowed, "{host} {origin} {origins:?}");
    }
    let no_page = request(("Origin: http://example.com\r\n", ""));
    assert!(super::parse(no_page.as_bytes(), MAX, &Origins::SameHost, true).is_ok());
}
