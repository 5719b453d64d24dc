//! The performatives (part 2, section 2.7), read in place; what this side never asks for is stepped over.

use crate::types::{Described, Items, Malformed, Value};

/// What a frame says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Performative<'a> {
    Open(Open<'a>),
    Begin(Begin),
    Attach(Attach<'a>),
    Flow(Flow),
    Transfer(Transfer<'a>),
    Disposition(Disposition),
    Detach(Detach),
    End,
    Close,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Open<'a> {
    pub(crate) container_id: &'a str,
    pub(crate) max_frame_size: u32,
    pub(crate) channel_max: u16,
    /// Milliseconds; zero is none.
    pub(crate) idle_time_out: u32,
    pub(crate) properties: Option<Items<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    pub(crate) remote_channel: Option<u16>,
    pub(crate) next_outgoing_id: u32,
    pub(crate) incoming_window: u32,
}

/// Which end of a link somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attach<'a> {
    pub(crate) name: &'a str,
    pub(crate) handle: u32,
    pub(crate) role: Role,
    pub(crate) snd_settle_mode: u8,
    pub(crate) source: Option<Terminus<'a>>,
    pub(crate) target: Option<Terminus<'a>>,
    pub(crate) initial_delivery_count: Option<u32>,
    /// Zero is as large as it likes.
    pub(crate) max_message_size: u64,
    pub(crate) properties: Option<Items<'a>>,
}

/// A source or a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminus<'a> {
    pub(crate) address: Option<&'a str>,
    pub(crate) is_dynamic: bool,
    /// It coordinates transactions.
    pub(crate) is_coordinator: bool,
    /// As the peer wrote it, for the answer.
    pub(crate) durable: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) next_incoming_id: Option<u32>,
    pub(crate) incoming_window: u32,
    pub(crate) handle: Option<u32>,
    pub(crate) delivery_count: Option<u32>,
    pub(crate) link_credit: Option<u32>,
    pub(crate) drain: bool,
    pub(crate) echo: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer<'a> {
    pub(crate) handle: u32,
    pub(crate) delivery_id: Option<u32>,
    pub(crate) delivery_tag: Option<&'a [u8]>,
    pub(crate) message_format: Option<u32>,
    pub(crate) settled: Option<bool>,
    pub(crate) more: bool,
    pub(crate) resume: bool,
    pub(crate) aborted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Disposition {
    pub(crate) role: Role,
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) settled: bool,
    /// The code of the state, if there is one.
    pub(crate) state: Option<u64>,
    /// The receiver would be glad of the message later.
    pub(crate) is_return: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Detach {
    pub(crate) handle: u32,
    pub(crate) closed: bool,
}

const MISSING: Malformed = Malformed("a field is missing that has to be there");

impl<'a> Performative<'a> {
    pub(crate) fn read(described: &Described<'a>) -> Result<Self, Malformed> {
        let mut fields = described.fields()?;
        match described.code {
            Some(0x10) => open(&mut fields).map(Self::Open),
            Some(0x11) => begin(&mut fields).map(Self::Begin),
            Some(0x12) => attach(&mut fields).map(Self::Attach),
            Some(0x13) => flow(&mut fields).map(Self::Flow),
            Some(0x14) => transfer(&mut fields).map(Self::Transfer),
            Some(0x15) => disposition(&mut fields).map(Self::Disposition),
            Some(0x16) => detach(&mut fields).map(Self::Detach),
            Some(0x17) => Ok(Self::End),
            Some(0x18) => Ok(Self::Close),
            _ => Err(Malformed("there is no such performative")),
        }
    }
}

fn open<'a>(fields: &mut Items<'a>) -> Result<Open<'a>, Malformed> {
    let container_id = fields.field()?.text()?.ok_or(MISSING)?;
    let _hostname = fields.field()?.text()?;
    let max_frame_size = fields.field()?.number()?.unwrap_or(u32::MAX);
    let channel_max = fields.field()?.number()?.unwrap_or(u16::MAX);
    let idle_time_out = fields.field()?.number()?.unwrap_or(0);
    for _ in 0..4 {
        // Locales and capabilities.
        fields.field()?;
    }
    let properties = fields.field()?.map()?;
    Ok(Open { container_id, max_frame_size, channel_max, idle_time_out, properties })
}

fn begin(fields: &mut Items<'_>) -> Result<Begin, Malformed> {
    let remote_channel = fields.field()?.number()?;
    let next_outgoing_id = fields.field()?.number()?.ok_or(MISSING)?;
    let incoming_window = fields.field()?.number()?.ok_or(MISSING)?;
    let _outgoing_window: u32 = fields.field()?.number()?.ok_or(MISSING)?;
    // A handle of this side is always one that the peer has.
    let _handle_max: Option<u32> = fields.field()?.number()?;
    Ok(Begin { remote_channel, next_outgoing_id, incoming_window })
}

fn role(value: Value<'_>) -> Result<Role, Malformed> {
    Ok(if value.boolean()?.ok_or(MISSING)? { Role::Receiver } else { Role::Sender })
}

fn attach<'a>(fields: &mut Items<'a>) -> Result<Attach<'a>, Malformed> {
    let name = fields.field()?.text()?.ok_or(MISSING)?;
    let handle = fields.field()?.number()?.ok_or(MISSING)?;
    let role = role(fields.field()?)?;
    let snd_settle_mode = fields.field()?.number()?.unwrap_or(2);
    let rcv_settle_mode: u8 = fields.field()?.number()?.unwrap_or(0);
    if snd_settle_mode > 2 || rcv_settle_mode > 1 {
        return Err(Malformed("there is no such settle mode"));
    }
    let source = terminus(fields.field()?)?;
    let target = terminus(fields.field()?)?;
    let _unsettled = fields.field()?.map()?;
    let _incomplete_unsettled = fields.field()?.boolean()?;
    let initial_delivery_count = fields.field()?.number()?;
    let max_message_size = fields.field()?.number()?.unwrap_or(0);
    for _ in 0..2 {
        // Capabilities.
        fields.field()?;
    }
    let properties = fields.field()?.map()?;
    Ok(Attach {
        name,
        handle,
        role,
        snd_settle_mode,
        source,
        target,
        initial_delivery_count,
        max_message_size,
        properties,
    })
}

fn terminus(value: Value<'_>) -> Result<Option<Terminus<'_>>, Malformed> {
    if value.is_null() {
        return Ok(None);
    }
    let described = value.described().ok_or(Malformed("this is no source and no target"))?;
    let mut fields = described.fields()?;
    match described.code {
        Some(0x28 | 0x29) => {
            let address = match fields.field()? {
                Value::Null => None,
                Value::Text(address) => Some(address),
                _ => return Err(Malformed("an address is a string")),
            };
            let durable = fields.field()?.number()?.unwrap_or(0);
            let _expiry_policy = fields.field()?.symbol()?;
            let _timeout: Option<u32> = fields.field()?.number()?;
            let is_dynamic = fields.field()?.boolean()?.unwrap_or(false);
            Ok(Some(Terminus { address, is_dynamic, is_coordinator: false, durable }))
        }
        Some(0x30) => Ok(Some(Terminus { address: None, is_dynamic: false, is_coordinator: true, durable: 0 })),
        _ => Err(Malformed("this is no source and no target")),
    }
}

fn flow(fields: &mut Items<'_>) -> Result<Flow, Malformed> {
    let next_incoming_id = fields.field()?.number()?;
    let incoming_window = fields.field()?.number()?.ok_or(MISSING)?;
    let _next_outgoing_id: u32 = fields.field()?.number()?.ok_or(MISSING)?;
    let _outgoing_window: u32 = fields.field()?.number()?.ok_or(MISSING)?;
    let handle = fields.field()?.number()?;
    let delivery_count = fields.field()?.number()?;
    let link_credit = fields.field()?.number()?;
    let _available: Option<u32> = fields.field()?.number()?;
    let drain = fields.field()?.boolean()?.unwrap_or(false);
    let echo = fields.field()?.boolean()?.unwrap_or(false);
    Ok(Flow { next_incoming_id, incoming_window, handle, delivery_count, link_credit, drain, echo })
}

fn transfer<'a>(fields: &mut Items<'a>) -> Result<Transfer<'a>, Malformed> {
    let handle = fields.field()?.number()?.ok_or(MISSING)?;
    let delivery_id = fields.field()?.number()?;
    let delivery_tag = fields.field()?.binary()?;
    let message_format = fields.field()?.number()?;
    let settled = fields.field()?.boolean()?;
    let more = fields.field()?.boolean()?.unwrap_or(false);
    let _rcv_settle_mode: Option<u8> = fields.field()?.number()?;
    let _state = fields.field()?;
    let resume = fields.field()?.boolean()?.unwrap_or(false);
    let aborted = fields.field()?.boolean()?.unwrap_or(false);
    Ok(Transfer { handle, delivery_id, delivery_tag, message_format, settled, more, resume, aborted })
}

fn disposition(fields: &mut Items<'_>) -> Result<Disposition, Malformed> {
    let role = role(fields.field()?)?;
    let first = fields.field()?.number()?.ok_or(MISSING)?;
    let last = fields.field()?.number()?.unwrap_or(first);
    let settled = fields.field()?.boolean()?.unwrap_or(false);
    let described = fields.field()?.described();
    let is_return = described.is_some_and(is_return);
    let state = described.and_then(|state| state.code);
    Ok(Disposition { role, first, last, settled, state, is_return })
}

/// Released; or modified, and not undeliverable here. What cannot be read is no wish for more.
fn is_return(state: Described<'_>) -> bool {
    let is_undeliverable = || {
        let Ok(mut fields) = state.fields() else { return true };
        let _failed = fields.field();
        fields.field().ok().and_then(|field| field.boolean().ok()).is_none_or(|is| is.unwrap_or(false))
    };
    match state.code {
        Some(0x26) => true,
        Some(0x27) => !is_undeliverable(),
        _ => false,
    }
}

fn detach(fields: &mut Items<'_>) -> Result<Detach, Malformed> {
    let handle = fields.field()?.number()?.ok_or(MISSING)?;
    let closed = fields.field()?.boolean()?.unwrap_or(false);
    Ok(Detach { handle, closed })
}
