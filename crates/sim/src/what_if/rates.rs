//! The least limit that nobody would have noticed.

use tidegate_control::Timestamp;
use tidegate_core::trace::{ALL, Trace};

use super::question::rate_of;

/// Round rates, the least first.
const ROUND: [&str; 22] = [
    "1/h", "2/h", "5/h", "10/h", "20/h", "1/m", "2/m", "5/m", "10/m", "20/m", "1/s", "2/s", "5/s", "10/s", "20/s",
    "50/s", "100/s", "200/s", "500/s", "1000/s", "5000/s", "20000/s",
];

/// For each group, and for all: the least of them under which no message of the trace would have waited, nor would wait if it
/// went on so. None if all are too low.
pub(super) fn unnoticed(trace: &Trace) -> Vec<(String, Option<String>)> {
    let groups = trace.group_of_publishers();
    let mut times: Vec<Vec<u64>> = vec![Vec::new(); groups.len()];
    trace.arrivals().iter().for_each(|arrival| times[arrival.publisher as usize].push(arrival.micros));
    let length = trace.arrivals().last().map_or(0, |arrival| arrival.micros);
    let mut places = vec![0; groups.len()];
    for (publisher, times) in times.iter().enumerate() {
        while places[publisher] < ROUND.len() && !conforms(times, ROUND[places[publisher]], length) {
            places[publisher] += 1;
        }
    }
    let least = |is_meant: &dyn Fn(u8) -> bool| {
        let meant = groups.iter().zip(&places).filter(|(group, _)| is_meant(**group));
        ROUND.get(meant.map(|(_, place)| *place).max().unwrap_or(0)).map(|text| (*text).to_owned())
    };
    let mut found = vec![(ALL.to_owned(), least(&|_| true))];
    for (place, group) in trace.groups().iter().enumerate() {
        found.push((group.name.clone(), least(&|of| usize::from(of) == place + 1)));
    }
    found
}

fn conforms(micros: &[u64], rate: &str, length: u64) -> bool {
    let Some(rate) = rate_of(rate) else { return false };
    // A short recording fits into the burst of a rate that is far too low: the mean has to fit as well.
    let interval = rate.interval().as_micros();
    if micros.len() as u128 * interval > u128::from(length) + interval {
        return false;
    }
    let mut due = Timestamp::ZERO;
    micros.iter().all(|micros| rate.conforms(&mut due, Timestamp::from_nanos(micros * 1000)))
}
