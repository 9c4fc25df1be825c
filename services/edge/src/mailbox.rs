//! Mail to cores, from other cores, the writer and other threads. A core posts mail for another core at the end of a turn, and so
//! wakes it once per turn.

use std::sync::Arc;

use millrace_layers::Position;
use millrace_layers::subscriptions::Subscribed;
use millrace_router::{Receiver, Target};
use millrace_session::Message;
use mio::Waker;

use crate::authorization::{AccessDecision, Attempted, LoginOutcome, Reviewed};
use crate::broker::Broker;
use crate::clients::{ClientSearch, Done, Question};
use crate::connection_id::ConnectionId;
use crate::deliveries::{CommittedMessage, Run};
use crate::handover::Adopted;
use crate::home::HomeClaim;
use crate::jobs::{
    AttachedSession, Checkpoint, Ids, PendingSubscribe, PublishAck, Purge, SessionKey, StoredPage,
    StoredTraces, SubscribeWrite, UnsubscribeWrite,
};
use crate::quota::Limit;
use crate::routes::{RouteProgress, Routes};
use crate::streams::GroupNumber;

pub(crate) enum Mail {
    /// A connection whose client id this core owns, with the bytes received so far.
    Adopt(Box<Adopted>),
    /// QoS 0 messages of one publisher to one topic, in their encoded form.
    Run(Box<Run>),
    Publish {
        routes: Arc<Routes>,
        message: Arc<Message>,
        from: Option<ConnectionId>,
    },
    /// A message for one member of a shared subscription.
    Shared {
        routes: Arc<Routes>,
        receiver: Receiver,
        message: Arc<Message>,
        from: Option<ConnectionId>,
        group: GroupNumber,
    },
    /// Receivers lag: pause reading from this publisher, unless most of its receivers on all cores do not.
    Congested {
        publisher: ConnectionId,
        progress: RouteProgress,
    },
    /// The pause of this publisher or CONNECT may end.
    Relieved(ConnectionId),
    /// A loop has an unfinished fan-out of this publisher's messages, which pauses the publisher, or has finished it.
    Fanout {
        id: ConnectionId,
        has_begun: bool,
    },
    /// Notice of a committed message that sessions on this core must read from the store.
    Grown(Arc<Routes>),
    /// A committed message for the persistent sessions on this core. A session delivers this copy, or reads the message
    /// from the store.
    Committed(Arc<CommittedMessage>),
    /// Notices may be lost: sessions look in the store; `None`: for all brokers.
    LookAround(Option<u64>),
    /// The messages of these publishers are durable, or could not be stored.
    Stored {
        acks: Vec<PublishAck>,
        stored: bool,
    },
    /// An earlier message of this publisher was refused. Its connection ends, so that it sends later messages again, too.
    SendAgain(ConnectionId),
    /// Traced messages whose acknowledgement or refusal is in the mail before this.
    Traced(Box<StoredTraces>),
    /// Another owner has taken the session over, or wants to.
    Lost {
        session: SessionKey,
        is_lost: bool,
        was_dead: bool,
    },
    /// Result of opening a broker: whether it exists; `None`: unknown.
    Opened(Arc<str>, Option<bool>),
    /// The session of a connection with its first page; `None`: it is unavailable now.
    Attached(ConnectionId, (Arc<Broker>, Arc<str>), Option<(Box<AttachedSession>, Option<StoredPage>)>),
    OfAnotherUser(ConnectionId, (Arc<Broker>, Arc<str>)),
    /// No session for this connection: the broker's stored sessions or wills are at a limit.
    OverLimit(ConnectionId, (Arc<Broker>, Arc<str>), Limit),
    /// The writer cannot retain a will because of this limit.
    LimitReached(Arc<Broker>, Limit),
    /// The subscriptions that are durable; `None` for each that is not.
    Subscribed(Box<SubscribeWrite>, Vec<Option<Subscribed>>),
    Suback(ConnectionId, Box<PendingSubscribe>),
    /// Other pods know the filters of this session. Their notices before that may be missing, so it reads again and joins
    /// the groups of these new shared subscriptions once more.
    Reread(Target, Vec<Box<str>>),
    /// True: it is stored; the same for packet ids.
    Unsubscribed(Box<UnsubscribeWrite>, bool),
    Ids(Box<Ids>, bool),
    /// The store has refused a checkpoint, which the session keeps for a later one.
    Unsaved(Box<Checkpoint>),
    /// The store has removed the will of a client that has sent DISCONNECT.
    Left(ConnectionId),
    /// Every job submitted before the barrier `number` is committed, at or before the position `through`.
    BarrierPassed {
        number: u64,
        through: Position,
    },
    /// A session has waited for the fan-outs of its broker up to this number, and becomes live.
    FannedOut(Target, u64),
    /// Messages for a session, with the version of its sources; `None`: they cannot be read now.
    Page(Target, u32, Option<StoredPage>),
    /// The claim keeps the client id here until the purge is submitted.
    Purge(Box<Purge>, Option<HomeClaim>),
    AccessDecided(Box<AccessDecision>),
    /// The step of enhanced authentication after a client's AUTH.
    Attempted(Box<Attempted>),
    /// The access settings of a broker have changed: its clients must be reviewed.
    AccessChanged(Arc<Broker>),
    Clients(Arc<ClientSearch>),
    Reviewed(Box<Reviewed>),
    /// The password file or the rules file has changed. The passwords of these users, in order, have changed with it.
    FilesChanged(Arc<[Box<str>]>),
    Authenticated {
        connection: ConnectionId,
        outcome: LoginOutcome,
    },
}

impl Mail {
    /// Bytes that count for the limit of the receiving mailbox: over it publishers pause, and copies from other pods are dropped.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Run(run) => run.bytes.len(),
            Self::Publish { message, .. } => message.size(),
            // A publish may cause a thousand of them.
            Self::Shared { message, .. } => size_of::<Self>() + message.size(),
            Self::Committed(committed) => committed.message.size(),
            Self::Adopt(adopted) => adopted.bytes.len(),
            _ => 0,
        }
    }
}

pub(crate) type Mailbox = millrace_mailbox::Mailbox<Mail, Waker>;

pub(crate) fn ask_clients(mailboxes: &[Mailbox], broker: Arc<Broker>, question: Question, done: Done) {
    let asked = Arc::new(ClientSearch::new(mailboxes.len(), broker, question, done));
    for mailbox in mailboxes {
        mailbox.post(Mail::Clients(asked.clone()));
    }
}
