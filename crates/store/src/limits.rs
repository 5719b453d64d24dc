//! Every maximum of this crate that is not a setting, with the relations between them.

use std::time::Duration;

/// Payload of one record: the largest packet of MQTT (256 MiB) and room for what we add.
pub const RECORD_BYTES_MAX: usize = 272 * 1024 * 1024;
/// One batch with its frames: one record of the largest size, or many small ones.
pub const BATCH_BYTES_MAX: usize = RECORD_BYTES_MAX + 1024 * 1024;
/// Records of one batch: recovery holds their places until it has seen the last one.
pub const BATCH_RECORDS_MAX: usize = 65_536;
/// Bytes that one group writes before it is synced; what more is waiting goes into the next one.
pub const GROUP_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What is kept of the buffer of a group for the next one: a large change should not leave its size behind for ever.
pub(crate) const BUFFER_KEPT: usize = 1024 * 1024;
/// Bytes read at once by a scan.
pub(crate) const SCAN_BYTES: usize = 1024 * 1024;
/// Files of damaged bytes that are set aside; further damage is reported and left where it is.
pub const QUARANTINE_FILES_MAX: usize = 64;
/// Lines of a report; further ones are counted.
pub const REPORT_LINES_MAX: usize = 256;
/// Open files that a reader keeps.
pub(crate) const HANDLES_MAX: usize = 64;
/// How long a group may be waited for, whatever the disk needs for a sync.
pub const GATHER_MAX: Duration = Duration::from_millis(5);
/// Waiting time after the first failure of the disk, doubled with each further one...
pub(crate) const RETRY_MIN: Duration = Duration::from_millis(100);
/// ...up to this, so that a freed disk is noticed in seconds.
pub(crate) const RETRY_MAX: Duration = Duration::from_secs(2);

const _: () = assert!(RECORD_BYTES_MAX < BATCH_BYTES_MAX, "the largest record fits into a batch");
const _: () = assert!(BATCH_BYTES_MAX < u32::MAX as usize, "lengths are 32 bits on disk");
