//! Which of the engine's servers leads, and that it is the one beside this node.

use std::time::Duration;

use async_nats::jetstream::stream::Stream;

use super::Engine;

/// The longest that a change of leaders is waited for. It takes some milliseconds where all is well.
const NEAR_MAX: Duration = Duration::from_secs(1);
/// How long is waited for one who may lead, and then looked again.
const LEADER_MAX: Duration = Duration::from_millis(300);
const NEAR_GLANCE: Duration = Duration::from_millis(10);

impl Engine {
    /// Lets the server beside this node lead: then its writes take one way less, and another server that ends does not hold them up for an
    /// election. Returns when it does, before anything is sent there: what is sent while nobody leads is lost, and a second with it. What
    /// does not work is no harm.
    pub(crate) async fn bring_near(&self, server: &str) {
        tokio::join!(self.bring_one_near(&self.stream, server), self.bring_one_near(&self.bucket.stream, server));
    }

    async fn bring_one_near(&self, stream: &Stream, server: &str) {
        let Some(before) = leader(stream).await.filter(|before| before != server) else { return };
        let subject = format!("$JS.API.STREAM.LEADER.STEPDOWN.{}", stream.cached_info().config.name);
        let wish = format!("{{\"placement\":{{\"preferred\":\"{server}\"}}}}");
        let wait = async {
            let _ = self.client.request(subject, wish.into()).await;
            // Engines before 2.11 choose whom they like.
            while leader(stream).await.is_none_or(|now| now == before) {
                tokio::time::sleep(NEAR_GLANCE).await;
            }
        };
        let _ = tokio::time::timeout(NEAR_MAX, wait).await;
    }
}

/// Who leads a stream; none if it has one server, or nobody answers.
async fn leader(stream: &Stream) -> Option<String> {
    let info = tokio::time::timeout(LEADER_MAX, stream.get_info()).await.ok()?.ok()?;
    info.cluster.and_then(|cluster| cluster.leader)
}
