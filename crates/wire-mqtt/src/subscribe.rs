//! SUBSCRIBE (section 3.8): filters, each with its options.

use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::qos::{PacketId, QoS};
use crate::reader::PacketReader;
use crate::sink::Sink;
use crate::text;
use crate::topic::TopicFilter;
use crate::version::Version;
use crate::wire_list::{ListSource, wire_list};

/// A client subscribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// What the answer refers to.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: Properties<'a>,
    /// One or more filters with their options.
    pub subscriptions: SubscriptionList<'a>,
}

impl<'a> Subscribe<'a> {
    pub(crate) fn read(mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        let packet_id = body.packet_id()?;
        let properties = Properties::read_in(version, &mut body, PropertySite::Subscribe, limits)?;
        let subscriptions = SubscriptionList::read(body, version, limits)?;
        Ok(Self { packet_id, properties, subscriptions })
    }
}

impl Body for Subscribe<'_> {
    fn kind(&self) -> PacketType {
        PacketType::Subscribe
    }

    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        out.put_u16(self.packet_id.get());
        if version.is_v5() {
            self.properties.write(keep, out);
        }
        for Subscription { filter, options } in self.subscriptions.iter() {
            out.put_field(filter.as_str().as_bytes());
            out.put_u8(options.byte(version));
        }
    }
}

/// A filter and what is wanted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subscription<'a> {
    /// The topics that are subscribed to.
    pub filter: TopicFilter<'a>,
    /// The options: quality of service, retained messages, own messages.
    pub options: SubscriptionOptions,
}

/// When retained messages are sent (section 3.8.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RetainHandling {
    /// At every subscribe, as always before MQTT 5.
    #[default]
    Send = 0,
    /// Only if the subscription is new.
    SendIfNew = 1,
    /// Never.
    DoNotSend = 2,
}

/// How messages are wanted. Before MQTT 5 there is only the quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SubscriptionOptions {
    /// The best quality of service that is wanted.
    pub qos: QoS,
    /// True if the subscriber does not want its own messages back.
    pub no_local: bool,
    /// True if forwarded messages keep the retain flag that they were published with.
    pub retain_as_published: bool,
    /// When retained messages are sent.
    pub retain_handling: RetainHandling,
}

impl SubscriptionOptions {
    /// Options with this quality of service and nothing special.
    pub fn with_qos(qos: QoS) -> Self {
        Self { qos, ..Self::default() }
    }

    const fn byte(self, version: Version) -> u8 {
        let qos = self.qos.bits();
        if !version.is_v5() {
            return qos;
        }
        qos | (self.no_local as u8) << 2 | (self.retain_as_published as u8) << 3 | (self.retain_handling as u8) << 4
    }

    fn read(byte: u8, version: Version) -> Parse<Self> {
        if !version.is_v5() && byte > 2 {
            return Err(violation!(MalformedPacket, "requested QoS is none of 0, 1, 2", "MQTT-3.8.3-4 (3.1.1)"));
        }
        if byte & 0b1100_0000 != 0 {
            return Err(violation!(MalformedPacket, "reserved bits in the subscription options", "MQTT-3.8.3-5"));
        }
        let qos = QoS::from_bits(byte & 3);
        let retain_handling = match byte >> 4 {
            0 => RetainHandling::Send,
            1 => RetainHandling::SendIfNew,
            2 => RetainHandling::DoNotSend,
            _ => return Err(violation!(ProtocolError, "retain handling 3", "3.8.3.1")),
        };
        Ok(Self {
            qos: qos.ok_or(violation!(ProtocolError, "QoS 3 in the subscription options", "3.8.3.1"))?,
            no_local: byte & 0b100 != 0,
            retain_as_published: byte & 0b1000 != 0,
            retain_handling,
        })
    }
}

wire_list! {
    /// The filters of a SUBSCRIBE.
    SubscriptionList<'a>, Subscription<'a>, next_on_wire
}

impl<'a> SubscriptionList<'a> {
    fn read(body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        if body.is_empty() {
            return Err(violation!(ProtocolError, "SUBSCRIBE without a filter", "MQTT-3.8.3-2"));
        }
        let mut reader = body;
        let mut count = 0;
        while !reader.is_empty() {
            count += 1;
            if count > limits.filter_count_max {
                return Err(violation!(QuotaExceeded, "too many filters in one SUBSCRIBE", "3.8.3"));
            }
            let filter = TopicFilter::parse(text::utf8(reader.field()?)?, limits)?;
            let options = SubscriptionOptions::read(reader.u8()?, version)?;
            if options.no_local && filter.group().is_some() {
                return Err(violation!(ProtocolError, "no local on a shared subscription", "MQTT-3.8.3-4"));
            }
        }
        Ok(Self(ListSource::Wire(body.remainder())))
    }
}

fn next_on_wire<'a>(reader: &mut PacketReader<'a>) -> Parse<Subscription<'a>> {
    let filter = TopicFilter::split(reader.text()?);
    // Options of 3.1.1 are options of 5 with the upper bits clear.
    let options = SubscriptionOptions::read(reader.u8()?, Version::V5)?;
    Ok(Subscription { filter, options })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Peer};
    use crate::packet::Packet;
    use crate::reason::ReasonCode;
    use alloc::vec::Vec;

    fn read<'a>(bytes: &'a [u8], version: Version, limits: &Limits) -> Result<Subscribe<'a>, ReasonCode> {
        match decode(bytes, version, limits) {
            Ok(Decoded::Packet { packet: Packet::Subscribe(packet), .. }) => Ok(packet),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.reason),
        }
    }

    #[test]
    fn the_example_of_3_1_1_reads_and_writes() {
        // 3.1.1, figure 3.23: a/b at QoS 1, c/d at QoS 2.
        let bytes = b"\x82\x0e\x00\x0a\x00\x03a/b\x01\x00\x03c/d\x02";
        let packet = read(bytes, Version::V311, &Limits::default()).unwrap();
        let wanted: Vec<_> =
            packet.subscriptions.iter().map(|wanted| (wanted.filter.as_str(), wanted.options.qos)).collect();
        assert_eq!(wanted, [("a/b", QoS::AtLeastOnce), ("c/d", QoS::ExactlyOnce)]);
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(Version::V311), &mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn options_of_5_read_and_write() {
        let bytes = b"\x82\x0b\x00\x01\x02\x0b\x07\x00\x03a/+\x2d";
        let packet = read(bytes, Version::V5, &Limits::default()).unwrap();
        let only = packet.subscriptions.iter().next().unwrap();
        let retain_handling = RetainHandling::DoNotSend;
        let expected =
            SubscriptionOptions { qos: QoS::AtLeastOnce, no_local: true, retain_as_published: true, retain_handling };
        assert_eq!(only.options, expected);
        assert_eq!(packet.properties.subscription_id().map(u32::from), Some(7));
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(Version::V5), &mut out);
        assert_eq!(out, bytes);
    }

    #[test]
    fn f017_filters_per_packet_are_capped_exactly() {
        let limits = Limits { filter_count_max: 2, ..Limits::default() };
        let two = b"\x82\x0a\x00\x01\x00\x01a\x00\x00\x01b\x00";
        assert!(read(two, Version::V311, &limits).is_ok());
        let three = b"\x82\x0e\x00\x01\x00\x01a\x00\x00\x01b\x00\x00\x01c\x00";
        assert_eq!(read(three, Version::V311, &limits), Err(ReasonCode::QuotaExceeded));
    }
}
