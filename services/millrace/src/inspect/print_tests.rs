use super::*;
use crate::inspect::rows::{
    EntryRow, SessionDetailsRow, SessionPurged, StreamDetails, SubscriptionRow, WillRow,
};

const NOW_MS: u64 = 1_795_219_200_000;
const HOUR_MS: u64 = 3_600_000;

fn session(client_id: &str) -> SessionRow {
    SessionRow {
        client_id: client_id.into(),
        state: RowState::Offline,
        offline_since_ms: Some(NOW_MS - 3 * HOUR_MS),
        expiry_s: Some(604_800),
        expires_at_ms: Some(NOW_MS - 3 * HOUR_MS + 604_800_000),
        subscriptions: 2,
        waiting: 10_000,
        waiting_is_more: true,
        waiting_bytes: 2_048,
        oldest_waiting_at_ms: Some(NOW_MS - 90_000),
    }
}

fn printed(style: Style, rows: &[InspectRow], after: Option<&str>) -> (String, String) {
    let (mut out, mut aside) = (Vec::new(), Vec::new());
    let mut printer = RowPrinter::new(&mut out, &mut aside, style, NOW_MS);
    for row in rows {
        printer.row(row).unwrap();
    }
    printer.end("There are none.", after).unwrap();
    (String::from_utf8(out).unwrap(), String::from_utf8(aside).unwrap())
}

#[test]
fn a_list_is_a_table_and_says_how_to_go_on() {
    let connected = SessionRow {
        state: RowState::Connected,
        offline_since_ms: None,
        expires_at_ms: None,
        expiry_s: None,
        waiting: 0,
        waiting_is_more: false,
        oldest_waiting_at_ms: None,
        ..session("b\n\x1b[2J")
    };
    let rows = [InspectRow::Session(session("sensor-1")), InspectRow::Session(connected)];
    let (out, aside) = printed(Style::Text, &rows, Some("it's"));
    assert_eq!(
        out,
        "CLIENT      STATE        EXPIRY  SUBSCRIPTIONS  WAITING  OLDEST\n\
         sensor-1    offline 3 h  7 d                 2  10,000+  1 min ago\n\
         b\\n\\x1b[2J  connected    never               2        0  -\n"
    );
    assert_eq!(aside, "There are more: add --after $'it\\'s' to continue.\n");
    assert_eq!(printed(Style::Text, &[], None), (String::new(), "There are none.\n".into()));
}

#[test]
fn json_is_one_object_a_line_and_nothing_else() {
    let rows = [
        InspectRow::Session(session("a")),
        InspectRow::SessionPurged(SessionPurged { client_id: "b\n".into(), will_lost: true }),
    ];
    let (out, aside) = printed(Style::Json, &rows, None);
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    assert_eq!((&lines[0]["kind"], &lines[0]["waiting"]), (&"session".into(), &10_000.into()));
    assert_eq!(lines[1]["client_id"], "b\n");
    assert_eq!(aside, "");
    assert_eq!(printed(Style::Json, &[], None), (String::new(), String::new()));
}

#[test]
fn a_session_is_shown_with_all_it_has() {
    let details = SessionDetailsRow {
        session: session("sensor-1"),
        epoch: 7,
        cursor: "12.0.0".into(),
        acknowledged_after_cursor: 1,
        missed_at_least: 3,
        missed_at_most: 5,
        will: Some(WillRow { delay_s: 30, bytes: 4 }),
        filters: vec![SubscriptionRow {
            filter: "a/+".into(),
            qos: 1,
            no_local: true,
            retain_as_published: false,
            retain_handling: 2,
            identifier: 9,
            stream: Some(77),
        }],
        inbound_packet_ids: vec![3],
        outbound_packet_ids: (1..=22).collect(),
    };
    let (out, _) = printed(Style::Text, &[InspectRow::SessionDetails(Box::new(details))], None);
    assert_eq!(
        out,
        "client        sensor-1\n\
         state         offline since 2026-11-20T21:00:00Z (3 h ago)\n\
         expiry        7 d, ends 2026-11-27T21:00:00Z (in 6 d)\n\
         waiting       10,000+ messages, 2.0 KiB; the oldest of 2026-11-20T23:58:30Z (1 min ago)\n\
         missed        3 to 5 messages, removed by a limit before they were read\n\
         will          4 B, to be published 30 s after the connection's end\n\
         from client   packet id 3 in flight\n\
         to client     packet ids 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20 and 2 more in flight\n\
         cursor        12.0.0, and 1 message after it acknowledged\n\
         epoch         7\n\
         \n\
         SUBSCRIPTION  QOS  OPTIONS                IDENTIFIER  STREAM\n\
         a/+             1  no local, no retained           9  77\n"
    );
}

#[test]
fn a_stream_is_shown_with_its_first_messages() {
    let stream = StreamRow {
        filter: "$share/g/a/#".into(),
        id: 77,
        subscribers: 2,
        messages: 1_000,
        bytes: 4_096,
        partitions: 1,
        oldest_at_ms: Some(NOW_MS - 90_000),
    };
    let entry = |number: u8, topic: Option<&str>, head: &str| EntryRow {
        position: format!("12.0.{number}"),
        at_ms: NOW_MS - 90_000,
        bytes: 30,
        topic: topic.map(String::from),
        head: head.into(),
    };
    let first = vec![entry(0, Some("a/b"), "21.5"), entry(1, None, "\\x01ab")];
    let details = StreamDetails { stream, floor: "4.0.0".into(), first };
    let (out, _) = printed(Style::Text, &[InspectRow::StreamDetails(Box::new(details))], None);
    assert_eq!(
        out,
        "filter        $share/g/a/#\n\
         id            77\n\
         subscribers   2\n\
         holds         1,000 messages, 4.0 KiB\n\
         oldest        2026-11-20T23:58:30Z (1 min ago)\n\
         partitions    1\n\
         floor         4.0.0\n\
         \n\
         POSITION  TIME                  BYTES  TOPIC             PAYLOAD\n\
         12.0.0    2026-11-20T23:58:30Z   30 B  a/b               21.5\n\
         12.0.1    2026-11-20T23:58:30Z   30 B  (unknown format)  \\x01ab\n\
         and 998 more\n"
    );
}

#[test]
fn purged_sessions_are_counted_and_lost_wills_said() {
    let mut out = Vec::new();
    let mut printer = RowPrinter::new(&mut out, io::sink(), Style::Text, NOW_MS);
    for will_lost in [true, false, true] {
        printer.row(&InspectRow::SessionPurged(SessionPurged { client_id: "c".into(), will_lost })).unwrap();
    }
    printer.purged("session", "sessions").unwrap();
    let said = String::from_utf8(out).unwrap();
    assert_eq!(said, "Removed 3 sessions.\n2 wills were removed and not published: no server runs.\n");
}
