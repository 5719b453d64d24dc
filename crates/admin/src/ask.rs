//! Questions to shards, awaited; and walks over all clients.

use tidegate_broker::ask::{Answer, Question};
use tidegate_core::report::ClientReport;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::ANSWER_TIMEOUT;
use crate::problem::Problem;
use crate::state::AdminState;

/// Asks one shard.
pub(crate) async fn ask(state: &AdminState, shard: usize, question: Question) -> Result<Answer, Problem> {
    let (reply, answer) = oneshot::channel();
    let sent = state.handle.ask(shard, question, move |answer| {
        // Whoever asked may have left.
        let _ = reply.send(answer);
    });
    sent.map_err(|_| Problem::busy("too many questions are under way"))?;
    let answer = timeout(ANSWER_TIMEOUT, answer).await;
    let answer = answer.map_err(|_| Problem::busy("a shard did not answer in time"))?;
    answer.map_err(|_| Problem::busy("the broker is going down"))
}

/// Shows every client of every shard to `look`, page by page.
pub(crate) async fn walk(state: &AdminState, mut look: impl FnMut(ClientReport)) -> Result<(), Problem> {
    let _place = state.walks.try_acquire().map_err(|_| Problem::busy("others are listing all clients right now"))?;
    for shard in 0..state.handle.shards() {
        let mut from = Some(0);
        while let Some(place) = from {
            let Answer::Clients { clients, next } = ask(state, shard, Question::Clients { from: place }).await? else {
                break;
            };
            clients.into_iter().for_each(&mut look);
            from = next;
        }
    }
    Ok(())
}
