//! Performatives of this side.

use tidegate_control::hints::Hints;

use crate::condition::AmqpError;
use crate::limits::{CHANNEL_MAX, FRAME_BYTES_MAX, HANDLE_MAX, IDLE_SECONDS, INCOMING_WINDOW, OUTGOING_WINDOW};
use crate::performative::Role;
use crate::write::{binary, composite, frame, map, symbol, symbols, text, ubyte, uint, ulong, ushort};

/// What a client is told of this side; `idle` are the seconds that it may be silent.
pub(crate) fn put_open(idle: Option<u16>, out: &mut Vec<u8>) {
    frame(0, out, |out| {
        composite(0x10, out, |fields| {
            fields.text("tidegate").null().uint(FRAME_BYTES_MAX as u32).put(|out| ushort(CHANNEL_MAX, out));
            fields.uint(u32::from(idle.unwrap_or(IDLE_SECONDS)) * 1000).null().null();
            fields.put(|out| symbols(&["ANONYMOUS-RELAY"], out)).null().put(|out| {
                map(1, out, |out| {
                    symbol("product", out);
                    text("tidegate", out);
                });
            });
        });
    });
}

pub(crate) fn put_close(error: Option<&AmqpError>, out: &mut Vec<u8>) {
    frame(0, out, |out| {
        composite(0x18, out, |fields| {
            fields.some(error, AmqpError::write);
        });
    });
}

pub(crate) fn put_begin(channel: u16, next_outgoing_id: u32, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x11, out, |fields| {
            fields.put(|out| ushort(channel, out)).uint(next_outgoing_id).uint(INCOMING_WINDOW).uint(OUTGOING_WINDOW);
            fields.uint(HANDLE_MAX);
        });
    });
}

pub(crate) fn put_end(channel: u16, error: Option<&AmqpError>, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x17, out, |fields| {
            fields.some(error, AmqpError::write);
        });
    });
}

/// The answer to an `attach`.
pub(crate) struct AttachReply<'a> {
    pub(crate) name: &'a str,
    pub(crate) handle: u32,
    /// Of this side.
    pub(crate) role: Role,
    pub(crate) snd_settle_mode: u8,
    /// None: refused, or an anonymous relay.
    pub(crate) source: Option<&'a str>,
    pub(crate) target: Option<TargetReply<'a>>,
    pub(crate) durable: u32,
    pub(crate) message_bytes_max: u64,
}

/// A target; an address of none is the one that takes messages for every topic.
pub(crate) struct TargetReply<'a>(pub(crate) Option<&'a str>);

pub(crate) fn put_attach(channel: u16, reply: &AttachReply<'_>, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x12, out, |fields| {
            fields.text(reply.name).uint(reply.handle).boolean(reply.role == Role::Receiver);
            fields.put(|out| ubyte(reply.snd_settle_mode, out)).put(|out| ubyte(0, out));
            fields.some(reply.source, |address, out| {
                composite(0x28, out, |fields| {
                    fields.text(address).uint(reply.durable);
                    fields.null().null().null().null().null().null().null().null();
                    fields.put(|out| symbols(&["topic"], out));
                });
            });
            fields.some(reply.target.as_ref(), |target, out| {
                composite(0x29, out, |fields| {
                    fields.some(target.0, text);
                });
            });
            fields.null().null();
            if reply.role == Role::Sender {
                fields.uint(0);
            } else {
                fields.null();
            }
            fields.put(|out| ulong(reply.message_bytes_max, out));
        });
    });
}

pub(crate) fn put_detach(channel: u16, handle: u32, closed: bool, error: Option<&AmqpError>, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x16, out, |fields| {
            fields.uint(handle).boolean(closed).some(error, AmqpError::write);
        });
    });
}

/// How a session, and one of its links, stands.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FlowReply {
    pub(crate) next_incoming_id: u32,
    pub(crate) incoming_window: u32,
    pub(crate) next_outgoing_id: u32,
    pub(crate) link: Option<LinkFlow>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkFlow {
    pub(crate) handle: u32,
    pub(crate) delivery_count: u32,
    pub(crate) credit: u32,
    pub(crate) drain: bool,
}

pub(crate) fn put_flow(channel: u16, flow: &FlowReply, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x13, out, |fields| {
            fields.uint(flow.next_incoming_id).uint(flow.incoming_window);
            fields.uint(flow.next_outgoing_id).uint(OUTGOING_WINDOW);
            if let Some(link) = flow.link {
                fields.uint(link.handle).uint(link.delivery_count).uint(link.credit).null();
                if link.drain {
                    fields.boolean(true);
                }
            }
        });
    });
}

/// What became of a delivery.
#[derive(Clone, Debug)]
pub(crate) enum DeliveryState {
    Accepted,
    Rejected(AmqpError),
    /// Not taken: it may come again, then and with this pace.
    Modified(Hints),
}

impl DeliveryState {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Accepted => composite(0x24, out, |_| {}),
            Self::Rejected(error) => composite(0x25, out, |fields| {
                fields.put(|out| error.write(out));
            }),
            Self::Modified(hints) => {
                let mut pace = Vec::new();
                hints.write(|name, value| pace.push((name, value)));
                composite(0x27, out, |fields| {
                    // It failed, and is welcome again; the annotations say when.
                    fields.boolean(true).boolean(false).put(|out| {
                        map(pace.len(), out, |out| {
                            for (name, value) in &pace {
                                symbol(name, out);
                                uint(value.parse().unwrap_or(u32::MAX), out);
                            }
                        });
                    });
                });
            }
        }
    }
}

pub(crate) fn put_disposition(channel: u16, role: Role, id: u32, state: Option<&DeliveryState>, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x15, out, |fields| {
            fields.boolean(role == Role::Receiver).uint(id).null().boolean(true);
            fields.some(state, DeliveryState::write);
        });
    });
}

/// One frame of a delivery.
pub(crate) struct TransferReply<'a> {
    pub(crate) handle: u32,
    /// Number, and whether nobody waits for an answer; of the first frame.
    pub(crate) begins: Option<(u32, bool)>,
    pub(crate) has_more: bool,
    pub(crate) payload: &'a [u8],
}

/// Bytes of a frame that are not payload, at most.
pub(crate) const TRANSFER_HEAD_BYTES: usize = 64;

pub(crate) fn put_transfer(channel: u16, transfer: &TransferReply<'_>, out: &mut Vec<u8>) {
    frame(channel, out, |out| {
        composite(0x14, out, |fields| {
            fields.uint(transfer.handle);
            match transfer.begins {
                Some((id, is_settled)) => {
                    fields.uint(id).put(|out| binary(&id.to_be_bytes(), out)).uint(0).boolean(is_settled);
                }
                None => {
                    fields.null().null().null().null();
                }
            }
            if transfer.has_more {
                fields.boolean(true);
            }
        });
        out.extend_from_slice(transfer.payload);
    });
}

/// A sign of life: a frame that says nothing.
pub(crate) const HEARTBEAT: [u8; 8] = [0, 0, 0, 8, 2, 0, 0, 0];
