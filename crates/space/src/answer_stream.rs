//! An answer that is sent while it is made: a pipe with a little room in it, between the thread that evaluates and the socket.
//!
//! ```text
//! evaluation → pieces of 64 KiB → at most eight of them → the body of an HTTP answer
//!              waits while there is no room; ends if nothing was taken for too long, or the reader has left
//! ```
//! An answer that does not come to its end is ended with an error, so that its body is broken off and nobody takes a part of it
//! for the whole. Knows neither queries nor HTTP.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use bytes::Bytes;
use tidegate_graph::CancelToken;
use tokio::sync::Notify;

use crate::limits::{STREAM_PIECE_BYTES, STREAM_PIECES_MAX, WATCH_INTERVAL};
use crate::memory::AnswerBytes;
use crate::progress::RequestProgress;
use crate::render;
use crate::shared_state::lock;

/// Why a streamed answer came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    /// All of it was made.
    Whole,
    /// Whoever reads it took nothing for too long.
    Stalled,
    /// Whoever read it has left.
    Left,
    /// Its time was over, an operator ended it, or the service ends.
    Cancelled,
    /// It is longer than an answer of its kind may be.
    TooLong,
    /// The evaluation failed in the middle.
    Failed,
}

impl StreamEnd {
    pub(crate) const ALL: [Self; 6] =
        [Self::Whole, Self::Stalled, Self::Left, Self::Cancelled, Self::TooLong, Self::Failed];

    /// As metrics have it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Stalled => "stalled",
            Self::Left => "left",
            Self::Cancelled => "cancelled",
            Self::TooLong => "too-long",
            Self::Failed => "failed",
        }
    }
}

#[derive(Default)]
struct PipeState {
    pieces: VecDeque<Bytes>,
    has_left: bool,
    end: Option<StreamEnd>,
}

struct AnswerPipe {
    state: Mutex<PipeState>,
    room: Condvar,
    filled: Notify,
    /// Bytes of answers that exist.
    held: Arc<AnswerBytes>,
}

/// The reader's end; the last copy of it that is dropped ends the evaluation.
#[derive(Clone)]
pub struct AnswerStream(Arc<StreamReader>);

struct StreamReader {
    pipe: Arc<AnswerPipe>,
    progress: Arc<RequestProgress>,
}

impl fmt::Debug for AnswerStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStream").field("pieces", &lock(&self.0.pipe.state).pieces.len()).finish_non_exhaustive()
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let mut state = lock(&self.pipe.state);
        state.has_left = true;
        state.pieces.clear();
        drop(state);
        self.progress.leave();
        self.pipe.room.notify_all();
    }
}

impl AnswerStream {
    /// The next piece; none at the end of the whole answer. After an error there is nothing more.
    pub(crate) async fn next(&self) -> Option<io::Result<Bytes>> {
        let pipe = &self.0.pipe;
        loop {
            let filled = pipe.filled.notified();
            {
                let mut state = lock(&pipe.state);
                if let Some(piece) = state.pieces.pop_front() {
                    drop(state);
                    pipe.room.notify_one();
                    return Some(Ok(piece));
                }
                match state.end {
                    Some(StreamEnd::Whole) => return None,
                    Some(end) => {
                        return Some(Err(io::Error::other(format!("the answer is broken off: {}", end.name()))));
                    }
                    None => {}
                }
            }
            filled.await;
        }
    }
}

/// The writer's end. It is for [`StreamSink::finish`] to say that all of it was written.
pub(crate) struct StreamSink<'a> {
    pipe: Arc<AnswerPipe>,
    piece: Vec<u8>,
    cancel: CancelToken,
    stall: Duration,
    /// Bytes that may still be written.
    bytes_left: u64,
    /// Called before the first piece: until then the answer can be another one.
    open: Option<Box<dyn FnOnce() + 'a>>,
    end: Option<StreamEnd>,
}

/// A pipe for one answer, whose reader may take nothing for so long, and whose bytes are counted there.
pub(crate) struct StreamTerms {
    pub(crate) stall: Duration,
    /// Bytes of the whole answer.
    pub(crate) bytes_max: u64,
    pub(crate) held: Arc<AnswerBytes>,
    /// Left when the reader is gone.
    pub(crate) progress: Arc<RequestProgress>,
}

impl StreamTerms {
    /// Both ends. `open` is called with the reader's before the first piece goes in.
    pub(crate) fn pipe<'a>(self, cancel: CancelToken, open: impl FnOnce(AnswerStream) + 'a) -> StreamSink<'a> {
        let (state, room, filled) = (Mutex::default(), Condvar::new(), Notify::new());
        let pipe = Arc::new(AnswerPipe { state, room, filled, held: self.held });
        let reader = AnswerStream(Arc::new(StreamReader { pipe: Arc::clone(&pipe), progress: self.progress }));
        let piece = Vec::with_capacity(STREAM_PIECE_BYTES);
        let open: Box<dyn FnOnce() + 'a> = Box::new(move || open(reader));
        let (stall, bytes_left) = (self.stall, self.bytes_max);
        StreamSink { pipe, piece, cancel, stall, bytes_left, open: Some(open), end: None }
    }
}

impl StreamSink<'_> {
    /// All of it was written; or else why not.
    pub(crate) fn finish(mut self, is_whole: bool) -> StreamEnd {
        let pushed = if is_whole { self.push() } else { Err(self.end.unwrap_or(StreamEnd::Failed)) };
        let end = pushed.err().unwrap_or(StreamEnd::Whole);
        self.end = Some(end);
        end
    }

    /// Whether its reader was given its end.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_none()
    }

    /// Puts the piece into the pipe when there is room.
    fn push(&mut self) -> Result<(), StreamEnd> {
        if let Some(open) = self.open.take() {
            open();
        }
        let bytes = std::mem::replace(&mut self.piece, Vec::with_capacity(STREAM_PIECE_BYTES));
        let until = Instant::now() + self.stall;
        let mut state = lock(&self.pipe.state);
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match () {
                () if state.has_left => return Err(StreamEnd::Left),
                () if self.cancel.is_cancelled() => return Err(StreamEnd::Cancelled),
                () if state.pieces.len() < STREAM_PIECES_MAX => break,
                () if left.is_zero() => return Err(StreamEnd::Stalled),
                () => {}
            }
            // Whoever cancels does not call.
            let waited = self.pipe.room.wait_timeout(state, left.min(WATCH_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if !bytes.is_empty() {
            state.pieces.push_back(render::held(bytes, &self.pipe.held));
        }
        drop(state);
        self.pipe.filled.notify_one();
        Ok(())
    }
}

impl io::Write for StreamSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(left) = self.bytes_left.checked_sub(bytes.len() as u64) else {
            self.end = Some(StreamEnd::TooLong);
            return Err(io::Error::other(StreamEnd::TooLong.name()));
        };
        self.bytes_left = left;
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= STREAM_PIECE_BYTES {
            self.push().map_err(|end| {
                self.end = Some(end);
                io::Error::other(end.name())
            })?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for StreamSink<'_> {
    /// However it ends, also by a panic, its reader hears of it.
    fn drop(&mut self) {
        let mut state = lock(&self.pipe.state);
        let end = self.end.unwrap_or(StreamEnd::Failed);
        state.end = Some(end);
        if end != StreamEnd::Whole {
            // What is broken off is not worth reading on.
            state.pieces.clear();
        }
        drop(state);
        self.pipe.filled.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::thread;

    use super::*;

    fn terms(stall: Duration) -> StreamTerms {
        StreamTerms { stall, bytes_max: u64::MAX, held: Arc::default(), progress: Arc::default() }
    }

    /// A sink whose reader is put there.
    fn opened(terms: StreamTerms, cancel: CancelToken) -> (StreamSink<'static>, Arc<Mutex<Option<AnswerStream>>>) {
        let slot = Arc::new(Mutex::new(None));
        let own = Arc::clone(&slot);
        (terms.pipe(cancel, move |reader| *lock(&own) = Some(reader)), slot)
    }

    fn block<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    const ROOM: usize = STREAM_PIECE_BYTES * STREAM_PIECES_MAX;

    #[test]
    fn all_of_it_comes_in_order_and_no_more_is_held_than_there_is_room_for() {
        let terms = terms(Duration::from_secs(60));
        let held = Arc::clone(&terms.held);
        let slot = Arc::new(Mutex::new(None));
        let own = Arc::clone(&slot);
        let writer = thread::spawn(move || {
            let mut sink = terms.pipe(CancelToken::default(), move |reader| *lock(&own) = Some(reader));
            let outcome = (0..4 * ROOM / 8).try_for_each(|number| sink.write_all(&(number as u64).to_le_bytes()));
            sink.finish(outcome.is_ok())
        });
        let reader = loop {
            if let Some(reader) = lock(&slot).take() {
                break reader;
            }
            thread::yield_now();
        };
        let (mut expected, mut most) = (0_u64, 0);
        while let Some(piece) = block(reader.next()) {
            most = most.max(held.sum());
            for number in piece.unwrap().chunks(8) {
                assert_eq!(number, expected.to_le_bytes());
                expected += 1;
            }
        }
        assert_eq!((expected, writer.join().unwrap()), ((4 * ROOM / 8) as u64, StreamEnd::Whole));
        assert!(most <= ROOM + 2 * STREAM_PIECE_BYTES, "{most} bytes were held");
        assert_eq!(held.sum(), 0);
    }

    #[test]
    fn who_takes_nothing_is_ended_and_hears_that_it_is_not_the_whole() {
        let (mut sink, slot) = opened(terms(Duration::from_millis(1)), CancelToken::default());
        let failed = sink
            .write_all(&vec![0; STREAM_PIECE_BYTES])
            .and_then(|()| (0..STREAM_PIECES_MAX).try_for_each(|_| sink.write_all(&vec![0; STREAM_PIECE_BYTES])));
        assert!(failed.is_err());
        assert_eq!(sink.finish(false), StreamEnd::Stalled);
        let reader = lock(&slot).take().unwrap();
        assert!(block(reader.next()).unwrap().is_err(), "never as if it were complete");
    }

    #[test]
    fn what_is_longer_than_it_may_be_is_broken_off_at_that_length() {
        let bytes_max = 3 * STREAM_PIECE_BYTES as u64;
        let terms = StreamTerms { bytes_max, ..terms(Duration::from_secs(60)) };
        let (mut sink, slot) = opened(terms, CancelToken::default());
        let written = (0..4).map_while(|_| sink.write_all(&vec![0; STREAM_PIECE_BYTES]).ok()).count();
        assert_eq!((written, sink.finish(false)), (3, StreamEnd::TooLong));
        let reader = lock(&slot).take().unwrap();
        let error = block(reader.next()).unwrap().unwrap_err();
        assert!(error.to_string().contains("too-long"), "{error}");
    }

    #[test]
    fn a_panic_or_a_reader_that_left_ends_it_and_before_the_first_piece_nothing_is_said() {
        let (mut sink, slot) = opened(terms(Duration::from_secs(60)), CancelToken::default());
        sink.write_all(b"a few").unwrap();
        assert!(!sink.is_open());
        drop(sink);
        assert!(lock(&slot).is_none(), "the answer can still be another one");
        let own = terms(Duration::from_secs(60));
        let progress = Arc::clone(&own.progress);
        let (mut sink, slot) = opened(own, CancelToken::default());
        sink.write_all(&vec![0; STREAM_PIECE_BYTES]).unwrap();
        assert!(!progress.is_gone());
        drop(lock(&slot).take());
        assert!(progress.is_gone() && sink.write_all(&vec![0; STREAM_PIECE_BYTES]).is_err());
        assert_eq!(sink.finish(false), StreamEnd::Left);
        let cancel = CancelToken::default();
        cancel.cancel();
        let (mut sink, _slot) = opened(terms(Duration::from_secs(60)), cancel);
        assert!(sink.write_all(&vec![0; STREAM_PIECE_BYTES]).is_err());
        assert_eq!(sink.finish(false), StreamEnd::Cancelled);
    }
}
