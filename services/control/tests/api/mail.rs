//! A server that sends mail: addresses are confirmed, and a sign-up does not reveal which accounts there are.

use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use millrace_control::{MailMessage, Mailer, SignUpBy};
use serde_json::json;

use crate::tools::{PASSWORD, Region};

/// Mails that were sent.
#[derive(Clone, Default)]
pub(crate) struct Letters(pub(crate) Arc<Mutex<Vec<MailMessage>>>);

impl Mailer for Letters {
    fn send(&self, letter: MailMessage) {
        self.0.lock().unwrap().push(letter);
    }
}

impl Letters {
    /// The only mail since the last call: its recipient, its subject, and the secret of its link.
    #[track_caller]
    pub(crate) fn letter(&self) -> (String, &'static str, String) {
        let mut letters = self.0.lock().unwrap();
        assert_eq!(letters.len(), 1, "{letters:?}");
        let MailMessage { to, subject, text } = letters.remove(0);
        let secret =
            text.expose().split_once('#').map_or("", |(_, rest)| rest).lines().next().unwrap_or_default();
        (to, subject, secret.strip_prefix("token=").unwrap_or(secret).to_owned())
    }

    /// Waits until there are so many mails: some are written after the answer.
    pub(crate) async fn wait_for(&self, count: usize) {
        for _ in 0..6_000 {
            if self.0.lock().unwrap().len() >= count {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{count} letters are not there: {:?}", self.0.lock().unwrap());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap().is_empty()
    }
}

pub(crate) async fn with_mail(sign_up_by: SignUpBy) -> (Region, Letters) {
    let (region, letters) = (Region::by(sign_up_by).await, Letters::default());
    region.control.confirm_addresses(Arc::new(letters.clone()), "https://console.example.org".into());
    (region, letters)
}

#[tokio::test]
async fn an_account_is_made_by_the_link_that_was_mailed_and_the_password_together() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let asked = region.stranger().post("/sign-up", json!({ "email": "Ann@example.org", "password": PASSWORD, "name": "Ann", "organisation": "Plant" })).await;
    asked.is(StatusCode::ACCEPTED);
    assert!(asked.headers.get("set-cookie").is_none());
    let (to, subject, token) = letters.letter();
    assert_eq!((&*to, subject), ("ann@example.org", "Confirm your e-mail address"));
    let sign_in = json!({ "email": "ann@example.org", "password": PASSWORD });
    region.stranger().post("/sign-in", sign_in.clone()).await.is(StatusCode::UNAUTHORIZED);

    let confirm = async |token: &str, password: &str| {
        region.stranger().post("/sign-up/confirm", json!({ "token": token, "password": password })).await
    };
    // Somebody else may have signed up with the address of who opens the link.
    let wrong = confirm(&token, "another sentence than that one").await;
    assert_eq!(confirm("nothing", PASSWORD).await.body, wrong.is(StatusCode::FORBIDDEN).body);
    let made = confirm(&token, PASSWORD).await;
    let mut ann = region.stranger();
    ann.welcome(made.is(StatusCode::CREATED));
    assert_eq!(ann.get("/me").await.text("/organisations/0/name"), "Plant");
    confirm(&token, PASSWORD).await.is(StatusCode::FORBIDDEN);
    region.stranger().post("/sign-in", sign_in).await.is(StatusCode::OK);
}

#[tokio::test]
async fn a_sign_up_does_not_tell_which_accounts_there_are() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let ask = async |email: &str| {
        let body = json!({ "email": email, "password": PASSWORD, "name": "Ann" });
        region.stranger().post("/sign-up", body).await
    };
    ask("ann@example.org").await.is(StatusCode::ACCEPTED);
    let (.., token) = letters.letter();
    let body = json!({ "token": token, "password": PASSWORD });
    region.stranger().post("/sign-up/confirm", body).await.is(StatusCode::CREATED);

    let (known, unknown) = (ask("ann@example.org").await, ask("bob@example.org").await);
    assert_eq!(known.is(StatusCode::ACCEPTED).status, unknown.status);
    let names = |answer: &crate::tools::Answer| answer.headers.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&known), names(&unknown));
    let subjects: Vec<_> =
        letters.0.lock().unwrap().drain(..).map(|letter| (letter.to, letter.subject)).collect();
    assert_eq!(
        subjects,
        [
            ("ann@example.org".to_owned(), "You have an account already"),
            ("bob@example.org".to_owned(), "Confirm your e-mail address")
        ]
    );
    // A refused sign-up does not count against the limit of mails to an address.
    for _ in 0..6 {
        let weak = json!({ "email": "cleo@example.org", "password": "passwordpassword", "name": "Cleo" });
        region.stranger().post("/sign-up", weak).await.is(StatusCode::UNPROCESSABLE_ENTITY);
    }
    // Nobody is flooded with mails, and the answers do not reveal that fewer were sent.
    for _ in 0..7 {
        ask("cleo@example.org").await.is(StatusCode::ACCEPTED);
    }
    assert_eq!(letters.0.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn a_server_of_invitations_refuses_strangers_before_it_looks_at_their_password() {
    let (region, letters) = with_mail(SignUpBy::Invitation).await;
    for token in [json!(null), json!("x")] {
        for _ in 0..6 {
            let weak = json!({ "email": "ann@example.org", "password": "passwordpassword", "name": "Ann", "token": token });
            region.stranger().post("/sign-up", weak).await.is(StatusCode::FORBIDDEN);
        }
    }
    assert!(letters.is_empty());
}

#[tokio::test]
async fn a_person_who_may_not_invite_uses_up_no_mail_of_the_organisation() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let link = region.control.setup().await.unwrap().unwrap();
    let mut ann = region.stranger();
    ann.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    let mut eve = region.stranger();
    let sign_up = json!({ "email": "eve@example.org", "password": PASSWORD, "name": "Eve" });
    region.stranger().post("/sign-up", sign_up).await.is(StatusCode::ACCEPTED);
    let (.., token) = letters.letter();
    let confirm = json!({ "token": token, "password": PASSWORD });
    eve.welcome(region.stranger().post("/sign-up/confirm", confirm).await.is(StatusCode::CREATED));
    let invite = |number: u32| json!({ "email": format!("b{number}@example.org"), "role": "viewer" });
    for number in 0..70 {
        eve.post(&ann.own("/invitations"), invite(number)).await.is(StatusCode::NOT_FOUND);
    }
    ann.post(&ann.own("/invitations"), invite(0)).await.is(StatusCode::CREATED);
    letters.letter();
}

#[tokio::test]
async fn a_link_of_a_sign_up_lasts_a_day() {
    let (region, letters) = with_mail(SignUpBy::Anybody).await;
    let body = json!({ "email": "ann@example.org", "password": PASSWORD, "name": "Ann" });
    region.stranger().post("/sign-up", body).await.is(StatusCode::ACCEPTED);
    let (.., token) = letters.letter();
    region.clock.move_on(86_400_000);
    let confirm = json!({ "token": token, "password": PASSWORD });
    region.stranger().post("/sign-up/confirm", confirm.clone()).await.is(StatusCode::FORBIDDEN);
    region.control.sweep().await.unwrap();
    region.stranger().post("/sign-up/confirm", confirm).await.is(StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn many_invitations_of_one_tenant_keep_no_other_from_inviting_the_person() {
    let (region, letters) = (Region::new().await, Letters::default());
    let (ann, eve) = (region.person().await, region.person().await);
    region.control.confirm_addresses(Arc::new(letters.clone()), "https://console.example.org".into());
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    for _ in 0..7 {
        eve.post(&eve.own("/invitations"), invite.clone()).await.is(StatusCode::CREATED);
    }
    let sent = letters.0.lock().unwrap().drain(..).count();
    assert!((5..=6).contains(&sent), "{sent}");
    ann.post(&ann.own("/invitations"), invite).await.is(StatusCode::CREATED);
    assert!(letters.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_invitation_is_mailed_and_its_address_confirmed() {
    let (region, letters) = with_mail(SignUpBy::Invitation).await;
    // The first owner comes by the printed link: there may be no mail yet.
    let link = region.control.setup().await.unwrap().unwrap();
    let mut ann = region.stranger();
    ann.sign_up(json!({ "token": link.expose() })).await.is(StatusCode::CREATED);
    assert!(letters.is_empty());
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    ann.post(&ann.own("/invitations"), invite).await.is(StatusCode::CREATED);
    let (to, _, token) = letters.letter();
    assert_eq!(to, "bob@example.org");

    let ask = async |email: &str| {
        let body = json!({ "email": email, "password": PASSWORD, "name": "Bob", "token": token });
        region.stranger().post("/sign-up", body).await
    };
    ask("eve@example.org").await.is(StatusCode::FORBIDDEN);
    // The link does not prove that the address is theirs: the person who invited has it, too.
    ask("bob@example.org").await.is(StatusCode::ACCEPTED);
    let (_, _, confirmation) = letters.letter();
    // A token does not lift the limit of mails to one address.
    for _ in 0..7 {
        ask("bob@example.org").await.is(StatusCode::ACCEPTED);
    }
    assert_eq!(letters.0.lock().unwrap().drain(..).count(), 4);
    let body = json!({ "token": confirmation, "password": PASSWORD });
    let made = region.stranger().post("/sign-up/confirm", body).await;
    assert_eq!(made.is(StatusCode::CREATED).text("/organisations/0/id"), ann.organisation);
    assert_eq!(made.text("/organisations/0/role"), "viewer");
}

#[tokio::test]
async fn without_mail_a_printed_link_confirms_a_sign_up() {
    let (region, printed) = (Region::by(SignUpBy::Confirmed).await, Letters::default());
    let sign_up = async |email: &str| {
        let body = json!({ "email": email, "password": PASSWORD, "name": "Ann" });
        region.stranger().post("/sign-up", body).await
    };
    // Nobody could get the link yet, and no account is made without it.
    sign_up("ann@example.org").await.is(StatusCode::CONFLICT);
    region.control.print_links(Arc::new(printed.clone()), "http://127.0.0.1:8080".into());
    let asked = sign_up("ann@example.org").await;
    assert!(asked.is(StatusCode::ACCEPTED).headers.get("set-cookie").is_none());
    let (to, subject, token) = printed.letter();
    assert_eq!((&*to, subject), ("ann@example.org", "Confirm your e-mail address"));
    let confirm = async |password: &str| {
        region.stranger().post("/sign-up/confirm", json!({ "token": token, "password": password })).await
    };
    confirm("the password of somebody who reads the log").await.is(StatusCode::FORBIDDEN);
    let mut ann = region.stranger();
    ann.welcome(confirm(PASSWORD).await.is(StatusCode::CREATED));
    let again = sign_up("ann@example.org").await;
    assert_eq!(again.is(StatusCode::ACCEPTED).body, asked.body);
    assert_eq!(printed.letter().1, "You have an account already");

    // A member has passed the invitation on, so it needs no other link.
    let invite = json!({ "email": "bob@example.org", "role": "viewer" });
    let invitation = ann.post(&ann.own("/invitations"), invite).await.text("/token").to_owned();
    let body =
        json!({ "email": "bob@example.org", "password": PASSWORD, "name": "Bob", "token": invitation });
    region.stranger().post("/sign-up", body).await.is(StatusCode::CREATED);
    let ways = region.stranger().get("/sign-in/ways").await;
    assert_eq!((&ways.body["sign_up"], &ways.body["password_reset"]), (&json!("anybody"), &json!(false)));
}

#[tokio::test]
async fn without_mail_a_printed_link_changes_an_address() {
    let (region, printed) = (Region::new().await, Letters::default());
    let (ann, eve) = (region.person().await, region.person().await);
    let change = json!({ "email": "new@example.org", "password": PASSWORD });
    ann.post("/me/email", change.clone()).await.is(StatusCode::CONFLICT);
    region.control.print_links(Arc::new(printed.clone()), "http://127.0.0.1:8080".into());
    ann.post("/me/email", change).await.is(StatusCode::ACCEPTED);
    let notice = printed.0.lock().unwrap().pop().unwrap();
    assert_ne!(notice.to, "new@example.org");
    let (to, _, token) = printed.letter();
    assert_eq!(to, "new@example.org");
    let link = json!({ "token": token });
    eve.post("/me/email/confirm", link.clone()).await.is(StatusCode::CONFLICT);
    ann.post("/me/email/confirm", link).await.is(StatusCode::NO_CONTENT);
    assert_eq!(ann.get("/me").await.text("/user/email"), "new@example.org");
}
