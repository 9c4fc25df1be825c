//! The commands that look into a store: turns a command line into a request, and rows into output.

use std::io::{BufWriter, Stderr, Stdout};
use std::path::PathBuf;

use super::args::{
    FolderArgs, InspectArgs, RetainedArgs, RetainedCommand, SessionsArgs, SessionsCommand, StreamsArgs,
    StreamsCommand,
};
use super::open_folder::AnswerError;
use super::print::{RowPrinter, Style};
use super::request::InspectRequest;
use super::rows::InspectRow;
use super::show;
use super::source::DataSource;
use crate::clock::now_ms;
use crate::failure::Failure;
use crate::remote::{StoredCommand, stored};
use crate::settings;
use crate::terminal::confirm::{confirm, may_ask};
use crate::text;

/// Most items that are counted for the question before a removal.
const COUNTED_MAX: usize = 10_000;

pub(crate) fn sessions(args: SessionsArgs) -> Result<(), Failure> {
    match args.what {
        SessionsCommand::List { look, limit, remote, .. } if remote.api => {
            stored(&look.broker, look.json, StoredCommand::Sessions(limit.limit))
        }
        SessionsCommand::Show { client, look, remote } if remote.api => {
            stored(&look.broker, look.json, StoredCommand::Session(&client))
        }
        SessionsCommand::Clear { client: Some(client), yes, look, remote, .. } if remote.api => {
            may_ask(yes)?;
            confirm(&format!("End the session of \"{}\"?", text::escape(client.as_bytes())), yes)?;
            stored(&look.broker, look.json, StoredCommand::EndSession(&client))
        }
        SessionsCommand::List { look, limit, after, .. } => {
            let request =
                InspectRequest::ListSessions { broker: look.broker.clone(), after, limit: limit.limit };
            print(&look, &request, "There are no sessions.")
        }
        SessionsCommand::Show { client, look, .. } => {
            let request = InspectRequest::ShowSession { broker: look.broker.clone(), client_id: client };
            print(&look, &request, "")
        }
        SessionsCommand::Clear { client, yes, look, .. } => {
            may_ask(yes)?;
            let (source, broker) = (open(&look.folder)?, look.broker.clone());
            let request = match client {
                Some(client_id) => {
                    confirm(&session_question(&source, &broker, &client_id)?, yes)?;
                    InspectRequest::PurgeSession { broker, client_id }
                }
                None => {
                    confirm(&format!("End all sessions of \"{broker}\" that have expired?"), yes)?;
                    InspectRequest::PurgeExpired { broker }
                }
            };
            purge(&source, &look, &request, "session", "sessions")
        }
    }
}

pub(crate) fn streams(args: StreamsArgs) -> Result<(), Failure> {
    match args.what {
        StreamsCommand::List { look, limit, after } => {
            let request =
                InspectRequest::ListStreams { broker: look.broker.clone(), after, limit: limit.limit };
            print(&look, &request, "There are no streams.")
        }
        StreamsCommand::Show { filter, messages, look } => {
            let request = InspectRequest::ShowStream { broker: look.broker.clone(), filter, messages };
            print(&look, &request, "")
        }
        StreamsCommand::Purge { filter, yes, look } => {
            may_ask(yes)?;
            let source = open(&look.folder)?;
            confirm(&stream_question(&source, &look.broker, &filter)?, yes)?;
            let request = InspectRequest::PurgeStream { broker: look.broker.clone(), filter };
            ended(print_from(&source, &look, &request, ""))
        }
    }
}

pub(crate) fn retained(args: RetainedArgs) -> Result<(), Failure> {
    match args.what {
        RetainedCommand::List { filter, look, limit, remote, .. } if remote.api => {
            stored(&look.broker, look.json, StoredCommand::Retained(filter.as_deref(), limit.limit))
        }
        RetainedCommand::Show { topic, look, remote, .. } if remote.api => {
            stored(&look.broker, look.json, StoredCommand::Message(&topic))
        }
        RetainedCommand::Clear { filter, yes, look, remote } if remote.api => {
            may_ask(yes)?;
            confirm(
                &format!("Remove the retained message of \"{}\"?", text::escape(filter.as_bytes())),
                yes,
            )?;
            stored(&look.broker, look.json, StoredCommand::Clear(&filter))
        }
        RetainedCommand::List { filter, look, limit, after, .. } => {
            let (broker, limit) = (look.broker.clone(), limit.limit);
            let request = InspectRequest::ListRetained { broker, filter, after, limit };
            print(&look, &request, "There are no retained messages.")
        }
        RetainedCommand::Show { topic, raw, look, .. } => {
            let request = InspectRequest::ShowRetained { broker: look.broker.clone(), topic };
            let source = open(&look.folder)?;
            let mut printer = printer(if raw { Style::Raw } else { style(look.json) });
            let shown = source.answer(&request, &mut |row| printer.row(&row));
            ended(shown.and_then(|_| printer.end("", None)))
        }
        RetainedCommand::Clear { filter, yes, look, .. } => {
            may_ask(yes)?;
            let source = open(&look.folder)?;
            if let Some(question) = retained_question(&source, &look.broker, &filter)? {
                confirm(&question, yes)?;
            }
            let request = InspectRequest::PurgeRetained { broker: look.broker.clone(), filter };
            purge(&source, &look, &request, "retained message", "retained messages")
        }
    }
}

fn print(look: &InspectArgs, request: &InspectRequest, nothing: &str) -> Result<(), Failure> {
    ended(print_from(&open(&look.folder)?, look, request, nothing))
}

fn print_from(
    source: &DataSource,
    look: &InspectArgs,
    request: &InspectRequest,
    nothing: &str,
) -> Result<(), AnswerError> {
    let mut printer = printer(style(look.json));
    let answered = source.answer(request, &mut |row| printer.row(&row));
    // Prints the rows that came before a failure, too.
    let after = match answered {
        Ok(after) => after,
        Err(failed) => return printer.end("", None).and(Err(failed)),
    };
    printer.end(nothing, after.as_deref())
}

fn purge(
    source: &DataSource,
    look: &InspectArgs,
    request: &InspectRequest,
    one: &str,
    many: &str,
) -> Result<(), Failure> {
    let mut printer = printer(style(look.json));
    let mut purged = 0u64;
    let answered = source.answer(request, &mut |row| {
        purged += 1;
        printer.row(&row)
    });
    let printed = if answered.is_ok() || purged > 0 { printer.purged(one, many) } else { Ok(()) };
    ended(answered.map(drop).and(printed))
}

fn session_question(source: &DataSource, broker: &str, client_id: &str) -> Result<String, Failure> {
    let request = InspectRequest::ShowSession { broker: broker.into(), client_id: client_id.into() };
    let mut question = String::new();
    look_up(source, &request, &mut |row| {
        if let InspectRow::SessionDetails(details) = row {
            let session = &details.session;
            question = format!(
                "End the session \"{}\", with {} and {} waiting for it?",
                text::escape(client_id.as_bytes()),
                text::plural(session.subscriptions as u64, "subscription", "subscriptions"),
                show::at_least(session.waiting, session.waiting_is_more),
            );
            if details.will.is_some() && !source.is_running() {
                question += " Its will is not published, for no server runs.";
            }
        }
    })?;
    Ok(question)
}

fn stream_question(source: &DataSource, broker: &str, filter: &str) -> Result<String, Failure> {
    let request = InspectRequest::ShowStream { broker: broker.into(), filter: filter.into(), messages: 0 };
    let mut question = String::new();
    look_up(source, &request, &mut |row| {
        if let InspectRow::StreamDetails(details) = row {
            question = format!(
                "Remove {} ({}) of \"{}\", which {} may not have read?",
                text::plural(details.stream.messages, "message", "messages"),
                text::bytes(details.stream.bytes),
                text::escape(filter.as_bytes()),
                text::plural(details.stream.subscribers, "session", "sessions"),
            );
        }
    })?;
    Ok(question)
}

/// `None` when there is nothing to remove.
fn retained_question(source: &DataSource, broker: &str, filter: &str) -> Result<Option<String>, Failure> {
    let (broker, only) = (broker.into(), Some(filter.into()));
    let request = InspectRequest::ListRetained { broker, filter: only, after: None, limit: COUNTED_MAX };
    let mut found = 0;
    let more = look_up(source, &request, &mut |_| found += 1)?.is_some();
    let many = show::at_least(found, more);
    let noun = if many == "1" { "retained message" } else { "retained messages" };
    let question = format!("Remove {many} {noun} of \"{}\"?", text::escape(filter.as_bytes()));
    Ok((found > 0).then_some(question))
}

fn look_up(
    source: &DataSource,
    request: &InspectRequest,
    each: &mut dyn FnMut(InspectRow),
) -> Result<Option<String>, Failure> {
    let answered = source.answer(request, &mut |row| {
        each(row);
        Ok(())
    });
    answered.map_err(failure)
}

pub(super) fn open(folder: &FolderArgs) -> Result<DataSource, Failure> {
    DataSource::of(&data_dir(folder)?).map_err(failure)
}

pub(super) fn data_dir(folder: &FolderArgs) -> Result<PathBuf, Failure> {
    settings::data_dir(folder.data_dir.clone(), folder.config.clone(), settings::environment())
}

pub(super) fn style(json: bool) -> Style {
    if json { Style::Json } else { Style::Text }
}

pub(super) fn printer(style: Style) -> RowPrinter<BufWriter<Stdout>, Stderr> {
    RowPrinter::new(BufWriter::new(std::io::stdout()), std::io::stderr(), style, now_ms())
}

/// A reader that stops early, such as `head`, is no failure.
pub(super) fn ended(result: Result<(), AnswerError>) -> Result<(), Failure> {
    match result {
        Ok(()) | Err(AnswerError::NobodyReads) => Ok(()),
        Err(failed) => Err(failure(failed)),
    }
}

fn failure(ended: AnswerError) -> Failure {
    match ended {
        AnswerError::Failed(sentence) => Failure::Run(sentence),
        AnswerError::NobodyReads => {
            Failure::Run("the output ended early, because its reader was closed".into())
        }
    }
}
