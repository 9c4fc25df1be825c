//! Work between cores: whole turns of it at a time.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::subscriptions::Subscribed;
use millrace_router::{Receiver, Target};
use millrace_session::Message;
use mio::Waker;

use crate::access::{Attempted, Entered, Reviewed};
use crate::authenticator::Verdict;
use crate::broker::{Broker, Routes};
use crate::clients::Asked;
use crate::core::Committed;
use crate::core::connection::{Adopted, ConnectionId};
use crate::metering::Amount;
use crate::store::{
    Ack, Attached, Ids, Page, PendingSubscribe, Purge, SessionKey, StoredTraces, Subscribe, Unsubscribe,
};

/// One piece of work for another core.
pub(crate) enum Mail {
    /// A connection whose client id this core owns, with the bytes that came so far.
    Adopt(Box<Adopted>),
    /// QoS 0 publishes of one publisher to one topic, as they stood on the wire.
    Run(Box<Run>),
    /// A message for this core's receivers of `routes`.
    Publish { routes: Arc<Routes>, message: Arc<Message>, from: Option<ConnectionId> },
    /// A message for one receiver: the member of a shared subscription whose turn it is.
    Shared {
        routes: Arc<Routes>,
        receiver: Receiver,
        message: Arc<Message>,
        from: Option<ConnectionId>,
        group: u64,
    },
    /// A receiver of a publisher is behind: do not read the publisher until it is not.
    Congested(ConnectionId),
    /// The receiver has caught up.
    Relieved(ConnectionId),
    /// A message is committed that sessions of this core have to read.
    Grown(Arc<Routes>),
    /// A message is committed: sessions of this core that keep it take it, or read it.
    Committed(Arc<Committed>),
    /// Something may have been committed that no mail told of, to this broker or to any.
    LookAround(Option<u64>),
    /// What these publishers wait for is durable, or could not be stored.
    Stored { acks: Vec<Ack>, stored: bool },
    /// Messages that are followed were acknowledged, or refused, with the mail before this.
    Traced(Box<StoredTraces>),
    /// A session has another owner, or is wanted by one and not lost yet.
    Lost { session: SessionKey, is_lost: bool },
    /// A broker was looked for: whether there is one, if that could be found out.
    Opened(Arc<str>, Option<bool>),
    /// The session of a connection, with its first page; `None` when it cannot be had now.
    Attached(ConnectionId, (Arc<Broker>, Arc<str>), Option<(Box<Attached>, Option<Page>)>),
    /// The session that a connection asked for belongs to another user.
    OfAnotherUser(ConnectionId, (Arc<Broker>, Arc<str>)),
    /// Subscriptions are durable; `None` for those that are not.
    Subscribed(Box<Subscribe>, Vec<Option<Subscribed>>),
    /// Other pods know the filters of a SUBSCRIBE that needs nothing else.
    Suback(ConnectionId, Box<PendingSubscribe>),
    /// Other pods know the filters of a session that has come: they may not have told what it is to read.
    Reread(Target),
    /// Subscriptions are gone, or not.
    Unsubscribed(Box<Unsubscribe>, bool),
    /// The store knows packet ids, or refused to.
    Ids(Box<Ids>, bool),
    /// All that was left with the store before a fence is committed.
    Marked { fence: u64, through: Position },
    /// What a session was to read, with the version of its sources; `None` when it cannot be read now.
    Page(Target, u32, Option<Page>),
    /// An operator ends a session.
    Purge(Box<Purge>),
    /// A client of a managed broker may enter, or not.
    Entered(Box<Entered>),
    /// What became of a client that authenticates by SCRAM.
    Attempted(Box<Attempted>),
    /// What the store says of a managed broker has changed.
    AccessChanged(Arc<Broker>),
    /// Somebody asks for connected clients.
    Clients(Arc<Asked>),
    /// What a client of a managed broker may do now.
    Reviewed(Box<Reviewed>),
    /// The password file or the rules file has changed, and with it the passwords of these users, in order.
    FilesChanged(Arc<[Box<str>]>),
    /// The answer of the authenticator.
    Authenticated { connection: ConnectionId, verdict: Verdict },
}

/// QoS 0 publishes of one publisher to one topic.
pub(crate) struct Run {
    pub(crate) routes: Arc<Routes>,
    /// Whole PUBLISH packets without RETAIN, as a client of this kind (5.0 or not) gets them.
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) is_v5: bool,
    pub(crate) amount: Amount,
    /// `None`: on another pod.
    pub(crate) from: Option<ConnectionId>,
}

impl Mail {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Run(run) => run.bytes.len(),
            Self::Publish { message, .. } | Self::Shared { message, .. } => message.size(),
            Self::Committed(committed) => committed.message.size(),
            Self::Adopt(adopted) => adopted.bytes.len(),
            _ => 0,
        }
    }
}

/// What other threads leave for one core.
pub(crate) type Mailbox = millrace_mailbox::Mailbox<Mail, Waker>;
