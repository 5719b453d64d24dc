//! The engine: a connection, the stream of one lineage, and the bucket of leases. Each call is one question; what the answer
//! means is decided in `tidegate-cluster`.

mod near;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::header::{
    HeaderMap, HeaderName, NATS_EXPECTED_LAST_SEQUENCE, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM,
};
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::pull::{Ordered, OrderedConfig};
use async_nats::jetstream::context::{CreateStreamErrorKind, PublishErrorKind};
use async_nats::jetstream::kv::{self, Store};
use async_nats::jetstream::stream::{Config, DiscardPolicy, LastRawMessageErrorKind, StorageType, Stream};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use bytes::Bytes;
use tidegate_cluster::limits::ADDRESS_BYTES_MAX;
use tidegate_cluster::{
    Answer, ClusterName, DiskOp, Entry, HandOver, Lease, NodeName, Opening, ProbeAnswer, Subject, Subjects,
};

/// How long one question may take. An election of the engine takes 4 to 9 s; a question within it is asked again.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The same for what is only read: a question that nobody leads for is lost, and has to be asked again when somebody does.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Whom the engine knows us as.
#[derive(Clone)]
pub struct EngineUser {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for EngineUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Where the engine is, and what of it is ours.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Its servers: `nats://host:port`, several with commas between.
    pub servers: String,
    /// Whom it knows us as; None if it asks nobody.
    pub user: Option<EngineUser>,
    /// Who has signed its certificates, if the system does not know.
    pub ca: Option<PathBuf>,
    /// The cluster.
    pub cluster: ClusterName,
    /// The lineage.
    pub lineage: NodeName,
    /// How many of its servers keep a copy.
    pub replicas: usize,
    /// The name of the server beside this node, if there is one: it leads while this node carries the lineage.
    pub beside: Option<String>,
}

/// Why there is no cluster, in words for its operator.
#[derive(Debug)]
pub enum ClusterError {
    /// Nobody answers; it may be there in a moment.
    Unreachable(String),
    /// It will not work like this.
    Refused(String),
    /// An own folder cannot be read or written.
    Io {
        /// What was tried, with the place.
        what: String,
        /// The system's words.
        source: std::io::Error,
    },
}

impl fmt::Display for ClusterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(words) | Self::Refused(words) => f.write_str(words),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for ClusterError {}

/// Who carries the lineage: the sequence of the opening, its epoch, and what it says.
pub(crate) type Owner = (u64, u64, Opening);

/// A connection to the engine.
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    client: Client,
    context: Context,
    stream: Stream,
    bucket: Store,
    subjects: Subjects,
}

/// Connects, and asks nothing yet.
pub(crate) async fn context(options: &EngineOptions) -> Result<(Client, Context), ClusterError> {
    let servers: Vec<String> = options.servers.split(',').map(|server| server.trim().to_owned()).collect();
    let mut connect = ConnectOptions::new().name("tidegate").connection_timeout(ANSWER_MAX);
    if let Some(EngineUser { name, password }) = options.user.clone() {
        connect = connect.user_and_password(name, password);
    }
    if let Some(ca) = options.ca.clone() {
        connect = connect.add_root_certificates(ca).require_tls(true);
    }
    let at = without_secrets(&options.servers);
    let client = connect.connect(servers).await.map_err(|error| match error.kind() {
        ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => ClusterError::Refused(format!(
            "the engine at {at} does not let us in: check cluster.user and cluster.password_file ({error})"
        )),
        ConnectErrorKind::ServerParse => {
            ClusterError::Refused(format!("cluster.engine is no address of an engine: {at} ({error})"))
        }
        ConnectErrorKind::Tls => ClusterError::Refused(format!("no TLS with the engine at {at}: {error}")),
        _ => ClusterError::Unreachable(format!("no engine answers at {at} ({error}); is nats-server running there?")),
    })?;
    let mut context = jetstream::new(client.clone());
    context.set_timeout(ANSWER_MAX);
    Ok((client, context))
}

impl Engine {
    pub(crate) async fn connect(options: &EngineOptions) -> Result<Self, ClusterError> {
        let ((client, mut context), at) = (context(options).await?, without_secrets(&options.servers));
        let subjects = Subjects::new(options.cluster.clone(), options.lineage.clone());
        open_stream(&context, &subjects, options.replicas, &at).await?;
        open_bucket(&context, &subjects, options.replicas, &at).await?;
        context.set_timeout(LOOK_MAX);
        let stream = context.get_stream(subjects.stream()).await.map_err(|error| unanswered(&error))?;
        let bucket = open_bucket(&context, &subjects, options.replicas, &at).await?;
        Ok(Self { client, context, stream, bucket, subjects })
    }

    /// Publishes an operation at its place; with the engine's words if it will not have it, as when its disk is full.
    pub(crate) async fn publish(
        &self,
        subject: Subject,
        message: Bytes,
        expected_last: u64,
    ) -> (Answer, Option<String>) {
        self.send(subject, message, NATS_EXPECTED_LAST_SEQUENCE, expected_last).await
    }

    /// Publishes an opening behind the one that was seen.
    pub(crate) async fn open(&self, message: Bytes, behind: u64) -> Answer {
        self.send(Subject::Owner, message, NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, behind).await.0
    }

    async fn send(
        &self,
        subject: Subject,
        message: Bytes,
        condition: HeaderName,
        expected: u64,
    ) -> (Answer, Option<String>) {
        let mut headers = HeaderMap::new();
        headers.insert(condition, expected.to_string());
        headers.insert(NATS_EXPECTED_STREAM, self.subjects.stream());
        let text = self.subjects.text(subject);
        let sent = match self.context.publish_with_headers(text, headers, message).await {
            Ok(sent) => sent,
            Err(error) => return (Answer::Maybe, Some(error.to_string())),
        };
        match tokio::time::timeout(ANSWER_MAX, sent.into_future()).await {
            Ok(Ok(ack)) => (Answer::Kept(ack.sequence), None),
            Ok(Err(error)) => match error.kind() {
                PublishErrorKind::WrongLastSequence => (Answer::WrongLast, None),
                PublishErrorKind::TimedOut => (Answer::Maybe, None),
                _ => (Answer::Maybe, Some(error.to_string())),
            },
            Err(_) => (Answer::Maybe, None),
        }
    }

    /// The sequence of the last message; None if nobody answers.
    pub(crate) async fn last_sequence(&self) -> Option<u64> {
        let info = tokio::time::timeout(ANSWER_MAX, self.stream.get_info()).await.ok()?.ok()?;
        Some(info.state.last_sequence)
    }

    /// The last message, as its leader has it.
    pub(crate) async fn probe(&self) -> Option<ProbeAnswer> {
        let sequence = self.last_sequence().await?;
        let message = self.stream.get_raw_message(sequence).await.ok()?;
        let Entry { epoch, number, .. } = Entry::decode(&message.payload).ok()?;
        Some(ProbeAnswer { sequence, epoch, number })
    }

    /// Who carries the lineage, if anybody ever has.
    pub(crate) async fn owner(&self) -> Result<Option<Owner>, ClusterError> {
        let message = match self.stream.get_last_raw_message_by_subject(&self.subjects.text(Subject::Owner)).await {
            Ok(message) => message,
            Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
            Err(error) => return Err(unanswered(&error)),
        };
        match Entry::decode(&message.payload) {
            Ok(Entry { epoch, op: DiskOp::Open(opening), .. }) => Ok(Some((message.sequence, epoch, opening))),
            Ok(_) => Err(self.strange("its owner is not one")),
            Err(error) => Err(self.strange(&error.to_string())),
        }
    }

    /// A stream that is not as Tidegate has written it.
    pub(crate) fn strange(&self, words: &str) -> ClusterError {
        ClusterError::Refused(format!("the stream {} cannot be used: {words}", self.subjects.stream()))
    }

    /// Throws away what nobody needs; whether it was done.
    pub(crate) async fn purge(&self, subject: Subject, below: Option<u64>) -> bool {
        let purge = self.stream.purge().filter(self.subjects.text(subject));
        match below {
            Some(below) => purge.sequence(below).await.is_ok(),
            None => purge.await.is_ok(),
        }
    }

    /// Everything from the first message on, and then what comes.
    pub(crate) async fn messages(&self, behind: u64) -> Result<Ordered, ClusterError> {
        let deliver_policy = DeliverPolicy::ByStartSequence { start_sequence: behind + 1 };
        let config = OrderedConfig { deliver_policy, ..OrderedConfig::default() };
        let consumer = self.stream.create_consumer(config).await.map_err(|error| unanswered(&error))?;
        consumer.messages().await.map_err(|error| unanswered(&error))
    }

    /// Says that a node is there.
    pub(crate) async fn renew(&self, node: &NodeName, lease: &Lease) -> bool {
        let text: String = lease.to_string().chars().take(ADDRESS_BYTES_MAX + 80).collect();
        self.bucket.put(node.as_str(), text.into()).await.is_ok()
    }

    /// Notes why this lineage went from one node to another, in front of what is noted already; whether it was done.
    pub(crate) async fn note(&self, handover: &HandOver) -> bool {
        let key = self.subjects.handovers();
        let Ok(before) = self.bucket.get(key.as_str()).await else { return false };
        let before = before.map(|bytes| HandOver::parse_list(&String::from_utf8_lossy(&bytes))).unwrap_or_default();
        self.bucket.put(key.as_str(), handover.in_front_of(&before).into()).await.is_ok()
    }

    /// What these nodes have said last; those that said nothing are left out. Asked of the leader, as the owner is: any other server of the
    /// engine might answer what was true before it was cut off, and a node that lives would seem silent.
    pub(crate) async fn leases(&self, nodes: &[&NodeName]) -> Result<Vec<(NodeName, u64, Lease)>, ClusterError> {
        let mut table = Vec::new();
        for node in nodes {
            let message = match self.bucket.stream.get_last_raw_message_by_subject(&self.subjects.lease(node)).await {
                Ok(message) => message,
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => continue,
                Err(error) => return Err(unanswered(&error)),
            };
            // One that was taken out has no text.
            let lease = std::str::from_utf8(&message.payload).ok().and_then(Lease::parse);
            table.extend(lease.map(|lease| ((*node).clone(), message.sequence, lease)));
        }
        Ok(table)
    }
}

/// Addresses may have passwords in them; logs are read by others.
fn without_secrets(servers: &str) -> String {
    let bare = |server: &str| match (server.find("://"), server.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &server[..scheme + 3], &server[at + 1..]),
        _ => server.to_owned(),
    };
    servers.split(',').map(|server| bare(server.trim())).collect::<Vec<_>>().join(",")
}

pub(crate) fn unanswered(error: &dyn fmt::Display) -> ClusterError {
    ClusterError::Unreachable(format!("the engine does not answer: {error}"))
}

/// Servers of the engine that are missing may come.
fn is_passing(code: ErrorCode) -> bool {
    [ErrorCode::CLUSTER_NOT_AVAILABLE, ErrorCode::CLUSTER_NO_PEERS, ErrorCode::CLUSTER_NOT_LEADER].contains(&code)
}

async fn open_stream(
    context: &Context,
    subjects: &Subjects,
    replicas: usize,
    at: &str,
) -> Result<Stream, ClusterError> {
    let config = Config {
        name: subjects.stream(),
        subjects: vec![subjects.all()],
        storage: StorageType::File,
        num_replicas: replicas,
        // A stream that is full says so; it never throws away what was kept.
        discard: DiscardPolicy::New,
        ..Config::default()
    };
    context.get_or_create_stream(config).await.map_err(|error| match error.kind() {
        CreateStreamErrorKind::TimedOut => unanswered(&error),
        CreateStreamErrorKind::JetStreamUnavailable => ClusterError::Unreachable(format!(
            "the engine at {at} has no JetStream (start it with --jetstream), or is not ready yet"
        )),
        CreateStreamErrorKind::JetStream(error) if is_passing(error.kind()) => ClusterError::Unreachable(format!(
            "the engine at {at} cannot keep {replicas} copies yet, too few of its servers are there ({error}); start the other nodes"
        )),
        _ => ClusterError::Refused(format!(
            "the engine at {at} cannot keep {replicas} copies of {}: {error}; cluster.replicas says how many of its servers keep one",
            subjects.stream()
        )),
    })
}

async fn open_bucket(context: &Context, subjects: &Subjects, replicas: usize, at: &str) -> Result<Store, ClusterError> {
    if let Ok(bucket) = context.get_key_value(subjects.bucket()).await {
        return Ok(bucket);
    }
    let config = kv::Config { bucket: subjects.bucket(), history: 1, num_replicas: replicas, ..kv::Config::default() };
    // The stream was made with as many copies: what stands in the way of this passes.
    context.create_key_value(config).await.map_err(|error| {
        ClusterError::Unreachable(format!("the engine at {at} cannot keep the table {}: {error}", subjects.bucket()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_addresses_are_not_said() {
        assert_eq!(without_secrets("nats://me:secret@a:4222, nats://b:4222"), "nats://a:4222,nats://b:4222");
        let user = EngineUser { name: "me".into(), password: "secret".into() };
        assert!(!format!("{user:?}").contains("secret"));
    }
}
