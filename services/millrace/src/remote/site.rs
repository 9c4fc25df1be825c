//! The API of one organisation, as the arguments of a remote command select it. Commands name paths
//! below the organisation; this module adds the organisation and the broker, and reads all pages of
//! a list.

use std::io::Write;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::args::{ApiArgs, BrokerArgs};
use super::client::{ApiAnswer, ApiClient, Ask, FailedRequest};
use super::login::Login;
use super::print::Printer;
use crate::failure::Failure;

/// Rows of a page: the API's maximum.
const PAGE: usize = 200;

/// Characters that need no escape in a part of a path.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

pub(super) struct Site {
    client: ApiClient,
    url: String,
    organisation: String,
    pub(super) printer: Printer,
}

/// The rows of a list, at most as many as were requested.
pub(super) struct ListAnswer {
    pub(super) rows: Vec<Value>,
    /// The list has more rows than were requested.
    pub(super) more: bool,
    /// Servers that did not answer in time.
    pub(super) unanswered: Vec<String>,
}

pub(super) fn part(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// Escapes a client id for a path, `.` and `..` too, because HTTP clients would resolve them.
pub(super) fn client_part(id: &str) -> String {
    match id {
        "." => "base64:Lg".into(),
        ".." => "base64:Li4".into(),
        _ if id.starts_with("base64:") => format!("base64:{}", URL_SAFE_NO_PAD.encode(id)),
        _ => part(id),
    }
}

impl Site {
    pub(super) fn open(args: &ApiArgs) -> Result<Self, Failure> {
        Self::of(Login::find(args)?, Printer { json: args.json })
    }

    pub(super) fn of(login: Login, printer: Printer) -> Result<Self, Failure> {
        let (client, organisation) = (login.client()?, part(&login.organisation));
        Ok(Self { client, url: login.url, organisation, printer })
    }

    /// Returns the site and the path of the selected broker.
    pub(super) fn at_broker(args: &BrokerArgs) -> Result<(Self, String), Failure> {
        let site = Self::open(&args.api)?;
        let broker = site.broker(args.broker.as_deref())?;
        Ok((site, broker))
    }

    /// The path of a broker by its name or display name; `None` selects the only one. A name needs no permission to list
    /// brokers.
    pub(super) fn broker(&self, wanted: Option<&str>) -> Result<String, Failure> {
        if let Some(name) = wanted.filter(|name| !matches!(*name, "" | "." | "..")) {
            let path = format!("/brokers/{}", part(name));
            match self.client.try_ask(&Ask::get(self.own(&path))) {
                Ok(_) => return Ok(path),
                // The token may not read brokers; the command may need another permission.
                Err(refused) if refused.status == Some(StatusCode::FORBIDDEN) => return Ok(path),
                Err(refused) if refused.status == Some(StatusCode::NOT_FOUND) => {}
                Err(refused) => return Err(refused.failure),
            }
        }
        let all = self.list("/brokers", "", wanted.map_or(PAGE, |_| usize::MAX))?.rows;
        let names = |key: &str| {
            all.iter().filter(|one| wanted.is_none_or(|wanted| one[key] == wanted)).collect::<Vec<_>>()
        };
        let mut found = names("name");
        if found.is_empty() {
            found = names("display_name");
        }
        let name = |one: &Value| one["name"].as_str().unwrap_or_default().to_owned();
        match (&found[..], wanted) {
            ([one], _) => Ok(format!("/brokers/{}", part(&name(one)))),
            ([], Some(wanted)) => Err(Failure::Run(format!(
                "there is no broker \"{wanted}\" in this organisation; `millrace brokers list` lists them"
            ))),
            ([], None) => Err(Failure::Run(
                "there is no broker in this organisation; `millrace brokers create NAME` makes one".into(),
            )),
            (several, _) => Err(Failure::Settings(format!(
                "several brokers may be meant; say which with its name: {}",
                several.iter().map(|one| name(one)).collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// `query` has parameters as `name=value`.
    pub(super) fn list(&self, path: &str, query: &str, limit: usize) -> Result<ListAnswer, Failure> {
        pages(&self.client, &self.own(path), query, limit)
    }

    /// `path` is below the organisation.
    pub(super) fn get(&self, path: &str) -> Result<ApiAnswer, Failure> {
        self.client.ask(&Ask::get(self.own(path)))
    }

    /// `path` is outside of the organisation.
    pub(super) fn get_of_region(&self, path: &str) -> Result<Value, Failure> {
        Ok(self.client.ask(&Ask::get(path))?.body)
    }

    pub(super) fn make(&self, path: &str, body: Value) -> Result<Value, Failure> {
        Ok(self.client.ask(&Ask::once(self.own(path), body)?)?.body)
    }

    /// Like [`Self::make`], and repeats the request for some minutes while it is not answered.
    pub(super) fn make_patiently(&self, path: &str, body: Value, key: &str) -> Result<Value, FailedRequest> {
        Ok(self.client.ask_patiently(&Ask::named(self.own(path), body, key))?.body)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn send(&self, method: Method, path: &str, body: Value) -> Result<Value, Failure> {
        Ok(self.client.ask(&Ask::new(method, self.own(path), Some(body)))?.body)
    }

    pub(super) fn events(
        &self,
        path: &str,
        each: &mut dyn FnMut(&str, Value) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.client.events(&Ask::get(self.own(path)), each)
    }

    /// Writes an answer of any length, and returns its last line.
    pub(super) fn lines(&self, path: &str, out: &mut dyn Write) -> Result<Vec<u8>, Failure> {
        let mut last = Vec::new();
        self.client.parts(&Ask::get(self.own(path)), &mut |piece| {
            out.write_all(piece)
                .map_err(|error| Failure::Run(format!("the answer cannot be written: {error}")))?;
            for line in piece.split_inclusive(|byte| *byte == b'\n') {
                if last.ends_with(b"\n") {
                    last.clear();
                }
                last.extend_from_slice(line);
            }
            Ok(true)
        })?;
        Ok(last)
    }

    pub(super) fn act(&self, method: Method, path: &str) -> Result<Value, Failure> {
        let ask = Ask::new(method, self.own(path), None).with(header::IF_MATCH, "*");
        Ok(self.client.ask(&ask)?.body)
    }

    pub(super) fn put(&self, path: &str, body: &Value) -> Result<(), Failure> {
        let put = |name, value: &str| {
            self.client
                .ask(&Ask::new(Method::PUT, self.own(path), Some(body.clone())).with(name, value))
                .map(drop)
        };
        match self.client.try_ask(&Ask::get(self.own(path))) {
            Ok(found) => put(header::IF_MATCH, &found.etag.unwrap_or_default()),
            Err(refused) if refused.status == Some(StatusCode::NOT_FOUND) => put(header::IF_NONE_MATCH, "*"),
            Err(refused) => Err(refused.failure),
        }
    }

    /// Fails if the object was changed in the meantime.
    pub(super) fn edit(
        &self,
        method: Method,
        path: &str,
        edit: impl FnOnce(Value) -> Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        let found = self.get(path)?;
        let body = edit(found.body)?;
        let ask = Ask::new(method, self.own(path), Some(body));
        Ok(self.client.ask(&ask.with(header::IF_MATCH, found.etag.unwrap_or_default()))?.body)
    }

    fn own(&self, path: &str) -> String {
        format!("/organisations/{}{path}", self.organisation)
    }
}

impl ListAnswer {
    pub(super) fn whole(rows: Vec<Value>) -> Self {
        Self { rows, more: false, unanswered: Vec::new() }
    }

    /// The list in an answer without pages.
    pub(super) fn of_answer(answer: &Value) -> Self {
        Self::whole(answer["items"].as_array().cloned().unwrap_or_default())
    }
}

/// The rows of all pages of a list.
pub(super) fn pages(
    client: &ApiClient,
    path: &str,
    query: &str,
    limit: usize,
) -> Result<ListAnswer, Failure> {
    let mut list = ListAnswer { rows: Vec::new(), more: true, unanswered: Vec::new() };
    let mut cursor = String::new();
    while list.more && list.rows.len() < limit {
        let rows = (limit - list.rows.len()).min(PAGE);
        let page = client.ask(&Ask::get(format!("{path}?limit={rows}&{query}{cursor}")))?.body;
        list.rows.extend(page["items"].as_array().into_iter().flatten().cloned());
        let silent = page["unanswered"].as_array().into_iter().flatten();
        list.unanswered.extend(silent.filter_map(Value::as_str).map(str::to_owned));
        let next = page["next_cursor"].as_str();
        list.more = next.is_some();
        cursor = next.map(|next| format!("&cursor={}", part(next))).unwrap_or_default();
    }
    list.unanswered.sort();
    list.unanswered.dedup();
    Ok(list)
}
