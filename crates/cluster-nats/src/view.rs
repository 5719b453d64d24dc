//! A cluster from outside: who has its log, who is there, how many copies there are. Changes nothing, but for [`forget`].

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::consumer::pull::OrderedConfig;
use async_nats::jetstream::context::{GetStreamErrorKind, KeyValueErrorKind};
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures_util::StreamExt;
use tidegate_cluster::limits::NODES_MAX;
use tidegate_cluster::{DiskOp, Entry, Folder, HandOver, Lease, NodeName, Replica, Subject, Subjects};
use tokio::time::timeout;

use crate::engine::{ClusterError, EngineOptions, context, unanswered};

/// How long one message may take that is there.
const READ_MAX: Duration = Duration::from_secs(2);
/// The nodes, and the hand-overs of their lineages.
const KEYS_MAX: usize = 2 * NODES_MAX;

/// All of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// Who has opened the last epoch, and which; none before the first start.
    pub owner: Option<(NodeName, u64)>,
    /// The nodes that have said something, by name.
    pub nodes: Vec<NodeView>,
    /// Messages of the log's stream, and their bytes.
    pub messages: u64,
    /// See above.
    pub bytes: u64,
    /// Those of them that have the smart space's files; none if that could not be read.
    pub space_messages: Option<u64>,
    /// The engine's servers that keep a copy.
    pub copies: Vec<CopyView>,
    /// Who has handed it over to whom, newest first; none of nodes that are older than this list.
    pub handovers: Vec<HandOver>,
}

/// One node.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// Its name.
    pub node: NodeName,
    /// What it has said last.
    pub lease: Lease,
    /// How long ago that was, by the clocks of the engine and of who looks; none if they are apart.
    pub age: Option<Duration>,
}

/// A server of the engine that keeps a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyView {
    /// Its name.
    pub server: String,
    /// The others follow it.
    pub is_leader: bool,
    /// Whether it has everything, as the leader sees it.
    pub is_current: bool,
    /// Operations that it lacks, as the leader sees it.
    pub lag: u64,
    /// How long the leader has not heard of it; none of the leader itself.
    pub silent_for: Option<Duration>,
}

/// Looks once.
pub fn look(options: &EngineOptions) -> Result<ClusterView, ClusterError> {
    with_engine(options, async |stream, bucket, subjects| {
        let info = stream.get_info().await.map_err(|error| unanswered(&error))?;
        let copies = info.cluster.as_ref().map(|cluster| {
            let leader = cluster.leader.clone().map(|server| CopyView {
                server,
                is_leader: true,
                is_current: true,
                lag: 0,
                silent_for: None,
            });
            let follower = |peer: &async_nats::jetstream::stream::PeerInfo| CopyView {
                server: peer.name.clone(),
                is_leader: false,
                is_current: peer.current && !peer.offline,
                lag: peer.lag.unwrap_or(0),
                silent_for: Some(peer.active),
            };
            leader.into_iter().chain(cluster.replicas.iter().map(follower)).collect()
        });
        Ok(ClusterView {
            owner: owner(&stream, &subjects).await?,
            nodes: nodes(&bucket).await?,
            handovers: handovers(&bucket, &subjects).await,
            messages: info.state.messages,
            bytes: info.state.bytes,
            space_messages: space_messages(&stream, &subjects).await,
            copies: copies.unwrap_or_default(),
        })
    })
}

/// Takes a node out of the table that is gone for good. Whether it was in it.
pub fn forget(options: &EngineOptions, node: &NodeName) -> Result<bool, ClusterError> {
    with_engine(options, async |_, bucket, _| {
        let entry = bucket.entry(node.as_str()).await.map_err(|error| unanswered(&error))?;
        let is_there = entry.is_some_and(|entry| Lease::parse(&String::from_utf8_lossy(&entry.value)).is_some());
        if is_there {
            bucket.purge(node.as_str()).await.map_err(|error| unanswered(&error))?;
        }
        Ok(is_there)
    })
}

fn with_engine<T>(
    options: &EngineOptions,
    then: impl AsyncFnOnce(Stream, Store, Subjects) -> Result<T, ClusterError>,
) -> Result<T, ClusterError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ClusterError::Io { what: "cannot start".to_owned(), source })?;
    runtime.block_on(async {
        let (_, context) = context(options).await?;
        let subjects = Subjects::new(options.cluster.clone(), options.lineage.clone());
        let stream = context.get_stream(subjects.stream()).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(error)
                if error.kind() == async_nats::jetstream::ErrorCode::STREAM_NOT_FOUND =>
            {
                ClusterError::Refused(format!(
                    "the engine knows of no cluster {}: has a node of it ever served?",
                    options.cluster
                ))
            }
            _ => unanswered(&error),
        })?;
        let bucket = context.get_key_value(subjects.bucket()).await.map_err(|error| match error.kind() {
            KeyValueErrorKind::GetBucket => unanswered(&error),
            _ => ClusterError::Refused(format!("the table {} cannot be read: {error}", subjects.bucket())),
        })?;
        then(stream, bucket, subjects).await
    })
}

async fn owner(stream: &Stream, subjects: &Subjects) -> Result<Option<(NodeName, u64)>, ClusterError> {
    let message = match stream.get_last_raw_message_by_subject(&subjects.text(Subject::Owner)).await {
        Ok(message) => message,
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(None),
        Err(error) => return Err(unanswered(&error)),
    };
    match Entry::decode(&message.payload) {
        Ok(Entry { epoch, op: DiskOp::Open(opening), .. }) => Ok(Some((opening.node, epoch))),
        _ => Err(ClusterError::Refused(format!("the stream {} is not one of ours", subjects.stream()))),
    }
}

/// For people: that it cannot be read is no reason to say nothing at all.
async fn handovers(bucket: &Store, subjects: &Subjects) -> Vec<HandOver> {
    let text = bucket.get(subjects.handovers()).await.ok().flatten();
    text.map(|text| HandOver::parse_list(&String::from_utf8_lossy(&text))).unwrap_or_default()
}

/// Names say which files are the smart space's, subjects how many messages each has.
async fn space_messages(stream: &Stream, subjects: &Subjects) -> Option<u64> {
    let mut counts = stream.info_with_subjects(subjects.all()).await.ok()?;
    let (mut of_names, mut of_files) = (0, Vec::new());
    let names = subjects.text(Subject::Names);
    while let Some(count) = counts.next().await {
        let (subject, count) = count.ok()?;
        if subject == names {
            of_names = count;
        } else {
            of_files.push((subject, count as u64));
        }
    }
    let config = OrderedConfig { filter_subject: names, ..OrderedConfig::default() };
    let mut messages = stream.create_consumer(config).await.ok()?.messages().await.ok()?;
    let mut replica = Replica::default();
    for _ in 0..of_names {
        // Fewer, if a table was written meanwhile and the ones before it are gone.
        let Ok(Some(message)) = timeout(READ_MAX, messages.next()).await else { break };
        let message = message.ok()?;
        let sequence = message.info().ok()?.stream_sequence;
        replica.apply(sequence, Entry::decode(&message.payload).ok()?).ok()?;
    }
    let copied = replica.finish();
    let whole = copied.files.iter().map(|entry| (entry.file, entry.name.as_str()));
    // Only names were read, so of most files the bytes are missing.
    let named = whole.chain(copied.holey.iter().map(|(key, name)| (*key, name.as_str())));
    let of_space = named.filter(|(_, name)| Folder::of(name).0 == Folder::Space);
    let of_space: BTreeSet<String> = of_space.map(|(key, _)| subjects.text(Subject::File(key))).collect();
    Some(of_files.iter().filter(|(subject, _)| of_space.contains(subject)).map(|(_, count)| count).sum())
}

async fn nodes(bucket: &Store) -> Result<Vec<NodeView>, ClusterError> {
    let mut keys = pin!(bucket.keys().await.map_err(|error| unanswered(&error))?.take(KEYS_MAX));
    let mut nodes = Vec::new();
    while let Some(key) = keys.next().await {
        let key = key.map_err(|error| unanswered(&error))?;
        let Ok(node) = key.parse::<NodeName>() else { continue };
        let Some(entry) = bucket.entry(&key).await.map_err(|error| unanswered(&error))? else { continue };
        let Some(lease) = Lease::parse(&String::from_utf8_lossy(&entry.value)) else { continue };
        let said = u64::try_from(entry.created.unix_timestamp_nanos() / 1_000_000).unwrap_or(0);
        let said = SystemTime::UNIX_EPOCH + Duration::from_millis(said);
        nodes.push(NodeView { node, lease, age: SystemTime::now().duration_since(said).ok() });
    }
    nodes.sort_by(|one, other| one.node.cmp(&other.node));
    Ok(nodes)
}
