//! When a store is full, and when it is not any more: decided while there still is room for what makes it smaller.
//!
//! A log grows by what empties it, too: that a message was taken is one more record. So a part of the disk is never given to
//! publishers. Of it the *reserve* is a file that takes its bytes from everybody else until they are needed; the *margin* is
//! for what is on its way when somebody says "full"; and each record has room for those that take it back, which is also
//! what a compaction needs to write down where it stands. Beyond that the owner is told to refuse what makes the log grow,
//! and a compaction is worth its while whatever the size of the log.
//!
//! It refuses to know disks, threads and time: the log says how it is, the writer and the simulator act.

use crate::disk::Partition;

/// Name of the file that keeps bytes from others.
pub(crate) const RESERVE: &str = "RESERVE";
/// The reserve: one group that is being written (8 MiB), and as much for what takes messages back, 200 000 of them, and for
/// a snapshot of what is left then.
pub const RESERVE_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// No more of a small disk than this part.
const RESERVE_PART: u64 = 32;
/// The margin: what four shards may have under way (8 MiB each) when the store is found to be full.
pub const MARGIN_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// No more of a small disk, or of a small maximum, than this part.
const MARGIN_PART: u64 = 16;
/// Room for each record: `Sent` and `Dequeued` of a delivery take 24 to 28 bytes each and come with two records, the message
/// and its place in a queue; a snapshot says where a message stands, and in which queue, in 64.
const TAKE_BYTES: u64 = 48;

/// What a log takes, and what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogUsage {
    /// Bytes of its files.
    pub size: u64,
    pub records: u64,
    /// Bytes that they may take; None is as many as there are.
    pub size_max: Option<u64>,
    /// The file system; None if nothing is known of it.
    pub partition: Option<Partition>,
    /// The reserve was needed, and is not there again.
    pub lacks_reserve: bool,
    /// A compaction writes everything anew.
    pub is_rewritten: bool,
}

impl LogUsage {
    /// Bytes that are lacking until `margins` margins are free; 0 if they are.
    fn lacking(&self, margins: u64) -> u64 {
        let takes = self.records.saturating_mul(TAKE_BYTES);
        let need = |whole: u64| takes.saturating_add(margins * margin(whole));
        let of_size = self.size_max.map_or(0, |max| (self.size.saturating_add(need(max))).saturating_sub(max));
        let again = if self.is_rewritten { self.size } else { 0 };
        let of_disk = self.partition.map_or(0, |disk| need(disk.total).saturating_add(again).saturating_sub(disk.free));
        of_size.max(of_disk)
    }

    /// After so many bytes it is time to look again: a quarter of a margin, so that one is not missed.
    pub(crate) fn step(&self) -> u64 {
        let wholes = self.size_max.into_iter().chain(self.partition.map(|disk| disk.total));
        wholes.map(|whole| margin(whole) / 4).min().unwrap_or(MARGIN_BYTES_MAX / 4)
    }

    /// Whether two margins are free, whatever became of the reserve.
    pub fn has_room(&self) -> bool {
        self.lacking(2) == 0
    }

    /// The bytes that a reserve should have on this disk; None if nobody knows how large that is.
    pub(crate) fn reserve(&self) -> Option<u64> {
        self.partition.map(|disk| (disk.total / RESERVE_PART).min(RESERVE_BYTES_MAX))
    }

    fn words(&self) -> String {
        let used = bytes(self.size);
        match (self.size_max, self.partition) {
            (Some(max), _) if self.lacking_size() => format!("its files have {used} of at most {}", bytes(max)),
            (_, Some(disk)) => {
                format!("its files have {used}, and {} of {} are free", bytes(disk.free), bytes(disk.total))
            }
            _ => format!("its files have {used}, and the disk takes no more"),
        }
    }

    fn lacking_size(&self) -> bool {
        Self { partition: None, ..*self }.lacking(2) > 0
    }

    /// What an operator should know at a start: that the disk is nearly full, or smaller than the maximum. None if all is
    /// well.
    pub fn outlook(&self) -> Option<String> {
        let disk = self.partition?;
        let free = bytes(disk.free);
        if self.lacking(2) > 0 {
            return Some(format!("the store is nearly full: {}", self.words()));
        }
        let left = self.size_max?.saturating_sub(self.size);
        let of = bytes(disk.total);
        (disk.free < left)
            .then(|| format!("store.max_size lets the store grow by {}, but only {free} of {of} are free", bytes(left)))
    }
}

fn margin(whole: u64) -> u64 {
    (whole / MARGIN_PART).min(MARGIN_BYTES_MAX)
}

fn bytes(count: u64) -> String {
    match count {
        0..10_240 => format!("{count} bytes"),
        10_240..10_485_760 => format!("{} KiB", count >> 10),
        _ => format!("{} MiB", count >> 20),
    }
}

/// Whether a log has room.
#[derive(Clone, Debug, Default)]
pub struct LogRoom {
    is_full: bool,
    is_tight: bool,
    why: String,
    /// Records ever written when the last compaction began.
    compacted_at: Option<u64>,
}

impl LogRoom {
    /// Looks; whether the owner should refuse what makes the log grow. It begins with one margin free and ends with two.
    pub fn look(&mut self, usage: &LogUsage) -> bool {
        self.is_tight = usage.lacks_reserve || usage.lacking(2) > 0;
        let is_full = usage.lacks_reserve || usage.lacking(if self.is_full { 2 } else { 1 }) > 0;
        if is_full && !self.is_full {
            self.why = format!("the store is full: {}", usage.words());
        }
        self.is_full = is_full;
        is_full
    }

    /// Whether it is full.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Why, with the numbers from when it began.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Whether it has to be looked at again soon.
    pub(crate) fn is_tight(&self) -> bool {
        self.is_tight
    }

    /// Whether a compaction is worth its while although the log is short: there is little room, and something was written
    /// since the last one. `written`: records ever written.
    pub fn wants_compaction(&self, written: u64) -> bool {
        self.is_tight && self.compacted_at != Some(written)
    }

    /// A compaction begins.
    pub fn on_compaction(&mut self, written: u64) {
        self.compacted_at = Some(written);
    }

    /// It failed: the next one is worth a try.
    pub(crate) fn on_failed_compaction(&mut self) {
        self.compacted_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn usage(size: u64, records: u64, free: u64) -> LogUsage {
        let partition = Some(Partition { free, total: 160 * MIB });
        LogUsage { size, records, partition, ..LogUsage::default() }
    }

    #[test]
    fn a_store_is_full_while_there_is_room_for_what_takes_everything_back() {
        let mut room = LogRoom::default();
        assert!(!room.look(&usage(100 * MIB, 0, 20 * MIB)) && !room.wants_compaction(1));
        // 200 000 messages, one receiver each.
        let full = usage(100 * MIB, 400_000, 28 * MIB);
        assert!(room.look(&full) && room.wants_compaction(1));
        let free = full.partition.unwrap().free;
        assert!(free > 200_000 * (24 + 28), "room for what acknowledges them");
        assert!(free > 200_000 * 64, "room for a snapshot of all of them");
        assert!(room.why().contains("28 MiB of 160 MiB are free"), "{}", room.why());
    }

    #[test]
    fn it_ends_with_two_margins_and_not_at_the_first_byte() {
        let mut room = LogRoom::default();
        assert!(room.look(&usage(0, 0, 10 * MIB - 1)));
        assert!(room.look(&usage(0, 0, 10 * MIB)) && room.look(&usage(0, 0, 20 * MIB - 1)));
        assert!(!room.look(&usage(0, 0, 20 * MIB)));
        assert!(!room.look(&usage(0, 0, 10 * MIB)) && room.is_tight(), "compacted before it is full");
    }

    #[test]
    fn a_maximum_counts_the_files_and_not_what_others_have() {
        let mut room = LogRoom::default();
        let usage = |size| LogUsage { size_max: Some(16 * MIB), ..usage(size, 1000, 100 * MIB) };
        assert!(!room.look(&usage(14 * MIB)));
        assert!(room.look(&usage(15 * MIB)) && room.why().contains("of at most 16 MiB"), "{}", room.why());
    }

    #[test]
    fn what_is_written_anew_by_a_compaction_has_to_fit_twice() {
        let rewritten = |size, free| LogUsage { is_rewritten: true, ..usage(size, 10, free) };
        assert!(!LogRoom::default().look(&rewritten(60 * MIB, 90 * MIB)));
        assert!(LogRoom::default().look(&rewritten(75 * MIB, 80 * MIB)));
    }

    #[test]
    fn a_reserve_that_was_needed_keeps_it_full_and_a_compaction_is_tried_once_for_each_change() {
        let mut room = LogRoom::default();
        let lacking = LogUsage { lacks_reserve: true, ..LogUsage::default() };
        assert!(room.look(&lacking) && room.wants_compaction(7));
        room.on_compaction(7);
        assert!(!room.wants_compaction(7) && room.wants_compaction(8));
        room.on_failed_compaction();
        assert!(room.wants_compaction(7));
        assert!(!room.look(&LogUsage::default()) && !room.wants_compaction(9));
    }

    #[test]
    fn f149_a_start_says_what_is_free_and_what_is_allowed() {
        assert_eq!(usage(0, 0, 100 * MIB).outlook(), None);
        assert!(usage(0, 0, 8 * MIB).outlook().unwrap().contains("nearly full"));
        let more = LogUsage { size_max: Some(1024 * MIB), ..usage(24 * MIB, 0, 100 * MIB) };
        assert_eq!(
            more.outlook().unwrap(),
            "store.max_size lets the store grow by 1000 MiB, but only 100 MiB of 160 MiB are free"
        );
    }
}
