#![no_std]
#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod ack;
mod auth;
mod connack;
mod connect;
mod connect_flags;
mod decode;
mod disconnect;
mod encode;
mod error;
mod frame;
mod header;
mod kind;
mod limits;
mod packet;
pub mod property;
mod publish;
mod qos;
mod reader;
pub mod reason;
mod sink;
mod suback;
mod subscribe;
pub mod text;
pub mod topic;
mod unsubscribe;
mod varint;
mod version;
mod wire_list;

pub use ack::{Ack, AckKind};
pub use auth::Auth;
pub use connack::ConnAck;
pub use connect::{Connect, Will};
pub use decode::{Decoded, decode, decode_connect};
pub use disconnect::Disconnect;
pub use encode::{Diagnostics, Encode, Encoded, Peer};
pub use error::{PeerError, Violation};
pub use frame::{OutgoingAlias, Patch, PayloadPlace, PublishFrame};
pub use kind::{PacketType, Sender};
pub use limits::{Limits, Retain};
pub use packet::Packet;
pub use property::{Properties, Property};
pub use publish::{Delivery, Publish};
pub use qos::{PacketId, QoS};
pub use reason::ReasonCode;
pub use sink::Sink;
pub use suback::{ReasonCodes, SubAck, UnsubAck};
pub use subscribe::{RetainHandling, Subscribe, Subscription, SubscriptionList, SubscriptionOptions};
pub use topic::TopicFilter;
pub use unsubscribe::{TopicFilters, Unsubscribe};
pub use version::{Version, version_of_connect};
