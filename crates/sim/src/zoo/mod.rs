//! The zoo: what overload control must never make worse. Scenarios as data (`table`), clients as values (`crowd`), a
//! judge (`judge`, `verdict`), and a world of real shards in virtual time (`world`).
//!
//! `tidegate bench harm` runs the same scenarios, with the same clients and the same judge, on sockets.

pub mod crowd;
pub mod judge;
pub mod message;
pub mod model;
pub mod oath;
mod publisher;
mod reader;
mod rhythm;
pub mod space;
pub mod table;
pub mod tally;
pub mod verdict;
pub mod world;
