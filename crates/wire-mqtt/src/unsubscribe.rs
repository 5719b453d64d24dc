//! UNSUBSCRIBE (section 3.10): filters to forget.

use crate::encode::Body;
use crate::error::{Parse, violation};
use crate::kind::PacketType;
use crate::limits::Limits;
use crate::property::{KeptProperties, Properties, PropertySite};
use crate::qos::PacketId;
use crate::reader::PacketReader;
use crate::sink::Sink;
use crate::text;
use crate::topic::TopicFilter;
use crate::version::Version;
use crate::wire_list::{ListSource, wire_list};

/// A client unsubscribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// What the answer refers to.
    pub packet_id: PacketId,
    /// The properties.
    pub properties: Properties<'a>,
    /// One or more filters.
    pub filters: TopicFilters<'a>,
}

impl<'a> Unsubscribe<'a> {
    pub(crate) fn read(mut body: PacketReader<'a>, version: Version, limits: &Limits) -> Parse<Self> {
        let packet_id = body.packet_id()?;
        let properties = Properties::read_in(version, &mut body, PropertySite::Unsubscribe, limits)?;
        let filters = TopicFilters::read(body, limits)?;
        Ok(Self { packet_id, properties, filters })
    }
}

impl Body for Unsubscribe<'_> {
    fn kind(&self) -> PacketType {
        PacketType::Unsubscribe
    }

    fn write_body(&self, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        out.put_u16(self.packet_id.get());
        if version.is_v5() {
            self.properties.write(keep, out);
        }
        self.filters.iter().for_each(|filter| out.put_field(filter.as_str().as_bytes()));
    }
}

wire_list! {
    /// The filters of an UNSUBSCRIBE.
    TopicFilters<'a>, TopicFilter<'a>, next_on_wire
}

fn next_on_wire<'a>(reader: &mut PacketReader<'a>) -> Parse<TopicFilter<'a>> {
    reader.text().map(TopicFilter::split)
}

impl<'a> TopicFilters<'a> {
    fn read(body: PacketReader<'a>, limits: &Limits) -> Parse<Self> {
        if body.is_empty() {
            return Err(violation!(ProtocolError, "UNSUBSCRIBE without a filter", "MQTT-3.10.3-2"));
        }
        let mut reader = body;
        let mut count = 0;
        while !reader.is_empty() {
            count += 1;
            if count > limits.filter_count_max {
                return Err(violation!(QuotaExceeded, "too many filters in one UNSUBSCRIBE", "3.10.3"));
            }
            TopicFilter::parse(text::utf8(reader.field()?)?, limits)?;
        }
        Ok(Self(ListSource::Wire(body.remainder())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::{Decoded, decode};
    use crate::encode::{Encode, Peer};
    use crate::packet::Packet;
    use alloc::vec::Vec;

    #[test]
    fn the_example_of_3_1_1_reads_and_writes() {
        // 3.1.1, figure 3.30: a/b and c/d.
        let bytes = b"\xa2\x0c\x00\x0a\x00\x03a/b\x00\x03c/d";
        let limits = Limits::default();
        let list = [TopicFilter::parse("a/b", &limits).unwrap(), TopicFilter::parse("c/d", &limits).unwrap()];
        let filters = TopicFilters::new(&list);
        let packet = Unsubscribe { packet_id: PacketId::new(10).unwrap(), properties: Properties::EMPTY, filters };
        let mut out = Vec::new();
        let _ = packet.encode(Peer::new(Version::V311), &mut out);
        assert_eq!(out, bytes);
        let expected = Decoded::Packet { packet: Packet::Unsubscribe(packet), consumed: bytes.len() };
        assert_eq!(decode(bytes, Version::V311, &limits), Ok(expected));
    }

    #[test]
    fn shared_filters_can_be_unsubscribed() {
        let bytes = b"\xa2\x0f\x00\x01\x00\x00\x0a$share/g/x";
        assert!(decode(bytes, Version::V5, &Limits::default()).is_ok());
    }
}
