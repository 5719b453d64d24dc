//! A cluster from outside: who has its log, who is there, how many copies there are. Changes nothing, but for [`forget`].

use std::pin::pin;
use std::time::{Duration, SystemTime};

use async_nats::jetstream::context::{GetStreamErrorKind, KeyValueErrorKind};
use async_nats::jetstream::kv::Store;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use futures_util::StreamExt;
use tidegate_cluster::limits::NODES_MAX;
use tidegate_cluster::{DiskOp, Entry, HandOver, Lease, NodeName, Subject, Subjects};

use crate::engine::{ClusterError, EngineOptions, context, unanswered};

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
