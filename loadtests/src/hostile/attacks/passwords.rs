//! Attacks by wrong passwords, and by right passwords that queue behind them.

use std::io::Write;

use super::Attack;
use crate::clock;
use crate::failure::{Failure, Outcome, While};
use crate::hostile::client::{Client, dial};
use crate::hostile::packets::{CONNACK, Connect};
use crate::hostile::ring::Ring;
use crate::hostile::server::{ATTACKED, FRIENDLY, PASSWORD, Setup, USER};

pub(super) const ATTACKS: &[Attack] = &[
    Attack::by_stranger("wrong-passwords", "400 wrong passwords, then right ones", |ring| {
        wrong_passwords(ring, false)
    })
    .with(|| Setup { passwords: true, ..Setup::default() })
    .in_short_run(),
    Attack::by_stranger(
        "passwords-of-the-gone",
        "400 wrong passwords of clients that have left, then right ones",
        |ring| wrong_passwords(ring, true),
    )
    .with(|| Setup { passwords: true, ..Setup::default() }),
];

fn wrong_passwords(ring: &Ring<'_>, leave: bool) -> Outcome<()> {
    let mut strangers = Vec::new();
    for number in 0..ring.full_or_short(400, 200) {
        let mut stream = ring.stranger(number % 8)?;
        let guess = format!("guess {number}");
        let wrong = with_password(ATTACKED, &format!("stranger-{number}"), guess);
        stream.write_all(&wrong.bytes()).during("sending a wrong password")?;
        strangers.push(stream);
    }
    clock::pause_ms(50);
    if leave {
        strangers.clear();
    }
    let most = if ring.short { 3.0 } else { 1.0 };
    ring.at_most("a right password at another broker waits", right_password(ring, FRIENDLY)?, most, "s");
    ring.at_most("a right password at the attacked broker waits", right_password(ring, ATTACKED)?, most, "s");
    Ok(())
}

fn with_password(broker: &str, client_id: &str, password: String) -> Connect {
    let user = Some(format!("{broker}/{USER}"));
    Connect { user, password: Some(password), ..Connect::new(broker, client_id) }
}

fn right_password(ring: &Ring<'_>, broker: &str) -> Outcome<f64> {
    let begun_ns = clock::now_ns();
    let stream = dial(Ring::address(9_000), ring.server.mqtt).during("opening a connection")?;
    let mut client = Client::new(stream);
    client.send(&with_password(broker, "friend", PASSWORD.to_owned()).bytes());
    let answer = client.wait_for(CONNACK, 60.0);
    let waited = clock::ns_seconds(clock::now_ns() - begun_ns);
    match answer.and_then(|packet| packet.body.get(1).copied()) {
        Some(code) if code > 0 => Err(Failure::new(format!("a right password was refused: {code:#04x}"))),
        _ => Ok(waited),
    }
}
