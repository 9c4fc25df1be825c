//! The example of RFC 7677, a client of another project, and what goes wrong.

use std::num::NonZeroU32;

use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

use super::exchange::FakeKey;
use super::verifier::derive;
use super::*;
use crate::limits::SCRAM_ITERATIONS;
use crate::model::ScramVerifier;

const FAKE: FakeKey = FakeKey([9; 32]);

/// RFC 7677 section 3.
const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const CHALLENGE: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const ACCEPTED: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn salt() -> [u8; 16] {
    use base64::Engine as _;
    let salt = base64::engine::general_purpose::STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    salt.try_into().unwrap()
}

fn pencil() -> ScramVerifier {
    derive("pencil", salt(), NonZeroU32::new(4_096).unwrap())
}

/// Where a client is that was challenged as in the example.
fn challenged(verifier: Option<&ScramVerifier>) -> Enhanced {
    let mut enhanced = Enhanced::default();
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Ok("user"));
    enhanced.challenge_with(verifier, &FAKE, NONCE).unwrap();
    enhanced
}

#[test]
fn the_example_of_the_standard_goes_as_written_there() {
    let mut enhanced = Enhanced::default();
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Ok("user"));
    let challenge = enhanced.challenge_with(Some(&pencil()), &FAKE, NONCE).unwrap();
    assert_eq!(str::from_utf8(&challenge), Ok(CHALLENGE));
    let accepted = enhanced.verify_proof(FINAL.as_bytes()).unwrap();
    assert_eq!((&*accepted.user, str::from_utf8(&accepted.data)), ("user", Ok(ACCEPTED)));
}

/// The client of the PostgreSQL drivers. It leaves the user name empty, for the server has it
/// already.
fn client(
    enhanced: &mut Enhanced,
    password: &str,
    verifier: Option<&ScramVerifier>,
    random: u8,
) -> Result<(), ScramRefusal> {
    let mut client = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    assert_eq!(enhanced.begin(client.message()), Ok(""));
    let challenge = enhanced.challenge(verifier, &FAKE, &[random; NONCE_BYTES]).unwrap();
    client.update(&challenge).unwrap();
    let accepted = enhanced.verify_proof(client.message())?;
    client.finish(&accepted.data).unwrap();
    Ok(())
}

#[test]
fn a_client_of_another_project_authenticates_and_verifies_the_server() {
    // SASLprep makes the second ones of these of the first ones.
    for (stored, typed) in
        [("pencil", "pencil"), ("mr_-_v7", "mr_-_v7"), ("I\u{AD}X \u{2168}", "IX IX"), ("\u{7}", "\u{7}")]
    {
        let verifier = derive(stored, [3; 16], NonZeroU32::new(5_000).unwrap());
        assert_eq!(client(&mut Enhanced::default(), typed, Some(&verifier), 1), Ok(()), "{stored}");
        assert_eq!(client(&mut Enhanced::default(), "other", Some(&verifier), 1), Err(ScramRefusal::Proof));
    }
}

#[test]
fn a_client_authenticates_anew_as_often_as_it_likes_but_as_itself() {
    let verifier = pencil();
    let mut enhanced = Enhanced::default();
    for random in 0..3 {
        assert_eq!(client(&mut enhanced, "pencil", Some(&verifier), random), Ok(()));
    }
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Err(ScramRefusal::OtherUser));
    assert_eq!(enhanced.begin(b"n,,n=,r=a"), Err(ScramRefusal::Order), "it is over");
    let mut enhanced = Enhanced::default();
    assert_eq!(client(&mut enhanced, "pencil", Some(&verifier), 1), Ok(()));
    assert_eq!(client(&mut enhanced, "wrong", Some(&verifier), 2), Err(ScramRefusal::Proof));
}

#[test]
fn an_unknown_user_looks_like_a_wrong_password() {
    let challenge = |user: &str, verifier: Option<&ScramVerifier>, random: u8| {
        let mut enhanced = Enhanced::default();
        enhanced.begin(format!("n,,n={user},r=abc").as_bytes()).unwrap();
        String::from_utf8(enhanced.challenge(verifier, &FAKE, &[random; NONCE_BYTES]).unwrap()).unwrap()
    };
    let known = challenge("user", Some(&verifier("pencil", salt())), 1);
    let unknown = challenge("ghost", None, 1);
    assert_eq!(known.len(), unknown.len());
    let rounds = format!(",i={SCRAM_ITERATIONS}");
    assert!(known.ends_with(&rounds) && unknown.ends_with(&rounds));
    // The salt of a name is always the same, and another for another name.
    let salt_of = |challenge: &str| challenge.split(',').nth(1).unwrap().to_owned();
    assert_eq!(salt_of(&unknown), salt_of(&challenge("ghost", None, 2)));
    assert_ne!(salt_of(&unknown), salt_of(&challenge("ghosts", None, 1)));
    assert_eq!(challenged(None).verify_proof(FINAL.as_bytes()), Err(ScramRefusal::Proof));
    let other = verifier("another", salt());
    assert_eq!(challenged(Some(&other)).verify_proof(FINAL.as_bytes()), Err(ScramRefusal::Proof));
}

#[test]
fn a_user_that_does_not_exist_looks_different_in_each_broker_and_the_same_in_one() {
    let salt = |broker: u64| {
        let mut enhanced = Enhanced::default();
        enhanced.begin(b"n,,n=ghost,r=abc").unwrap();
        let fake = FakeKey::of_broker(&[7; 32], broker);
        let challenge = enhanced.challenge(None, &fake, &[1; NONCE_BYTES]).unwrap();
        String::from_utf8(challenge).unwrap()
    };
    assert_eq!(salt(1), salt(1));
    assert_ne!(salt(1), salt(2));
}

#[test]
fn a_client_accepted_by_another_method_reauthenticates_only_as_itself() {
    let verifier = pencil();
    let mut enhanced = Enhanced::reauthenticate("ann");
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Err(ScramRefusal::OtherUser));
    let mut enhanced = Enhanced::reauthenticate("user");
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Ok("user"));
    enhanced.challenge_with(Some(&verifier), &FAKE, NONCE).unwrap();
    assert!(enhanced.is_challenged());
    assert!(enhanced.verify_proof(FINAL.as_bytes()).is_ok());
}

#[test]
fn messages_of_another_exchange_are_refused() {
    let verifier = pencil();
    for (message, refusal) in [
        (FINAL.replace("k0,p", "k1,p"), ScramRefusal::Malformed),
        (FINAL.replace("r=rOprNGfwEbeRWgbNEkqO%", "r=%"), ScramRefusal::Malformed),
        (FINAL.replace("c=biws", "c=eSws"), ScramRefusal::Malformed),
        (FINAL.replace("p=dH", "p=dI"), ScramRefusal::Proof),
        (FINAL.replace(",p=", ",x=y,p="), ScramRefusal::Proof),
        (FIRST.to_owned(), ScramRefusal::Malformed),
    ] {
        let mut enhanced = challenged(Some(&verifier));
        assert_eq!(enhanced.verify_proof(message.as_bytes()), Err(refusal), "{message}");
        assert_eq!(enhanced.verify_proof(FINAL.as_bytes()), Err(ScramRefusal::Order), "there is one try");
    }
}

#[test]
fn packets_out_of_turn_end_it() {
    let verifier = pencil();
    assert_eq!(Enhanced::default().verify_proof(FINAL.as_bytes()), Err(ScramRefusal::Order));
    assert_eq!(Enhanced::default().challenge(None, &FAKE, &[0; NONCE_BYTES]), Err(ScramRefusal::Order));
    let mut enhanced = Enhanced::default();
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Ok("user"));
    assert_eq!(enhanced.begin(FIRST.as_bytes()), Err(ScramRefusal::Order));
    assert_eq!(challenged(Some(&verifier)).begin(FIRST.as_bytes()), Err(ScramRefusal::Order));
}
