//! A list of properties: read from the wire and checked once, or put together by the caller.

use core::fmt;

use super::id::{PropertyId, PropertySite};
use super::value::Property;
use crate::error::{Parse, Violation, violation};
use crate::kind::Sender;
use crate::limits::Limits;
use crate::reader::PacketReader;
use crate::reason::ReasonCode;
use crate::sink::{Counter, Sink};
use crate::varint;
use crate::version::Version;

/// The properties of a packet. Always empty before MQTT 5.
#[derive(Clone, Copy)]
pub struct Properties<'a> {
    source: PropertySource<'a>,
    /// One bit per identifier, so that asking for a property that is not there costs nothing.
    present: u64,
}

#[derive(Clone, Copy)]
enum PropertySource<'a> {
    /// As on the wire, without the leading length.
    Wire(&'a [u8]),
    /// Put together by the caller.
    Typed(&'a [Property<'a>]),
}

impl<'a> Properties<'a> {
    /// No properties.
    pub const EMPTY: Self = Self { source: PropertySource::Wire(&[]), present: 0 };

    /// Properties to send.
    pub fn new(list: &'a [Property<'a>]) -> Self {
        let present = list.iter().fold(0, |present, property| present | property.id().bit());
        Self { source: PropertySource::Typed(list), present }
    }

    /// Check a list that stands at `site`, given without its leading length.
    pub fn parse(bytes: &'a [u8], site: PropertySite, limits: &Limits) -> Result<Self, &'static Violation> {
        if bytes.len() > limits.property_bytes_max {
            return Err(violation!(QuotaExceeded, "too many bytes of properties", "2.2.2"));
        }
        let mut reader = PacketReader::new(bytes);
        let mut present = 0;
        let mut count = 0;
        while !reader.is_empty() {
            count += 1;
            if count > limits.property_count_max {
                return Err(violation!(QuotaExceeded, "too many properties", "2.2.2"));
            }
            let id = Property::read(&mut reader)?.id();
            if !id.allowed_in(site) {
                return Err(violation!(MalformedPacket, "property not allowed in this packet", "2.2.2.2"));
            }
            if present & id.bit() != 0 && !id.repeats_in(site) {
                return Err(violation!(ProtocolError, "property given twice", "2.2.2.2"));
            }
            present |= id.bit();
        }
        let properties = Self { source: PropertySource::Wire(bytes), present };
        properties.check_together(site, limits.sender)?;
        Ok(properties)
    }

    /// Rules between properties, and between properties and sender.
    fn check_together(&self, site: PropertySite, sender: Sender) -> Parse<()> {
        if self.has(PropertyId::AuthenticationData) && !self.has(PropertyId::AuthenticationMethod) {
            return Err(violation!(ProtocolError, "authentication data without a method", "3.1.2.11.10"));
        }
        if sender == Sender::Client && site == PropertySite::Publish && self.has(PropertyId::SubscriptionId) {
            return Err(violation!(ProtocolError, "subscription identifier from a client", "MQTT-3.3.4-6"));
        }
        if sender == Sender::Server && site == PropertySite::Disconnect && self.has(PropertyId::SessionExpiry) {
            return Err(violation!(ProtocolError, "session expiry in a server's DISCONNECT", "MQTT-3.14.2-2"));
        }
        Ok(())
    }

    /// Read a list with its leading length.
    #[inline]
    pub(crate) fn read(reader: &mut PacketReader<'a>, site: PropertySite, limits: &Limits) -> Parse<Self> {
        let len = reader.varint()?;
        if len == 0 {
            return Ok(Self::EMPTY);
        }
        Self::parse(reader.take(len as usize)?, site, limits)
    }

    /// The same in a version that may have none.
    pub(crate) fn read_in(
        version: Version,
        reader: &mut PacketReader<'a>,
        site: PropertySite,
        limits: &Limits,
    ) -> Parse<Self> {
        if version.is_v5() { Self::read(reader, site, limits) } else { Ok(Self::EMPTY) }
    }

    /// A list that [`Properties::encode`] wrote, read back without checking it again, as from a queue or a store. On
    /// other bytes the list ends where it stops making sense.
    pub fn from_encoded(bytes: &'a [u8]) -> Self {
        let mut list = Self { source: PropertySource::Wire(bytes), present: 0 };
        list.present = list.iter().fold(0, |present, property| present | property.id().bit());
        list
    }

    /// Append the list without its leading length, leaving out what `keep` refuses.
    pub fn encode(&self, out: &mut impl Sink, mut keep: impl FnMut(&Property<'a>) -> bool) {
        self.iter().filter(|property| keep(property)).for_each(|property| property.write(out));
    }

    /// True if there is none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// True if the property is there.
    #[inline]
    pub const fn has(&self, id: PropertyId) -> bool {
        self.present & id.bit() != 0
    }

    /// The properties in the order in which they were sent.
    pub fn iter(&self) -> PropertyIter<'a> {
        PropertyIter { source: self.source }
    }

    /// The first property with this identifier.
    #[inline]
    pub fn find(&self, id: PropertyId) -> Option<Property<'a>> {
        if self.has(id) { self.look_for(id) } else { None }
    }

    #[inline(never)]
    fn look_for(&self, id: PropertyId) -> Option<Property<'a>> {
        self.iter().find(|property| property.id() == id)
    }

    /// Append length and properties, without those that need not be sent.
    #[inline]
    pub(crate) fn write(&self, keep: KeptProperties, out: &mut impl Sink) {
        match self.source {
            PropertySource::Wire(bytes) if keep == KeptProperties::Everything => {
                varint::write(bytes.len().min(varint::MAX), out);
                out.put(bytes);
            }
            _ => self.write_some(keep, out),
        }
    }

    /// The end of a packet that may stop before its reason code if that is success, and before its properties if there are none.
    #[inline]
    pub(crate) fn write_after(&self, reason: ReasonCode, version: Version, keep: KeptProperties, out: &mut impl Sink) {
        let bare = self.is_empty_under(keep);
        if !version.is_v5() || (bare && reason == ReasonCode::Success) {
            return;
        }
        out.put_u8(reason.code());
        if !bare {
            self.write(keep, out);
        }
    }

    fn write_some(&self, keep: KeptProperties, out: &mut impl Sink) {
        let mut counter = Counter::default();
        self.encode(&mut counter, |property| keep.wants(property.id()));
        varint::write(counter.len().min(varint::MAX), out);
        self.encode(out, |property| keep.wants(property.id()));
    }

    /// True if [`Properties::write`] would write nothing but a length of zero.
    pub(crate) fn is_empty_under(&self, keep: KeptProperties) -> bool {
        self.present & !keep.dropped() == 0
    }
}

/// What may be left out so that a packet fits its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeptProperties {
    Everything,
    /// The reason string goes first: it is for people, while user properties may carry hints for machines.
    NoReasonString,
    /// Neither reason string nor user properties.
    Essential,
}

impl KeptProperties {
    const fn dropped(self) -> u64 {
        match self {
            Self::Everything => 0,
            Self::NoReasonString => PropertyId::ReasonString.bit(),
            Self::Essential => PropertyId::ReasonString.bit() | PropertyId::UserProperty.bit(),
        }
    }

    const fn wants(self, id: PropertyId) -> bool {
        self.dropped() & id.bit() == 0
    }

    /// The next smaller choice.
    pub(crate) const fn less(self) -> Option<Self> {
        match self {
            Self::Everything => Some(Self::NoReasonString),
            Self::NoReasonString => Some(Self::Essential),
            Self::Essential => None,
        }
    }
}

impl Default for Properties<'_> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl PartialEq for Properties<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.present == other.present && self.iter().eq(other.iter())
    }
}

impl Eq for Properties<'_> {}

impl fmt::Debug for Properties<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for &Properties<'a> {
    type Item = Property<'a>;
    type IntoIter = PropertyIter<'a>;

    fn into_iter(self) -> PropertyIter<'a> {
        self.iter()
    }
}

/// Iterator over a list of properties.
#[derive(Clone)]
pub struct PropertyIter<'a> {
    source: PropertySource<'a>,
}

impl<'a> Iterator for PropertyIter<'a> {
    type Item = Property<'a>;

    fn next(&mut self) -> Option<Property<'a>> {
        match &mut self.source {
            PropertySource::Typed(list) => {
                let (first, rest) = list.split_first()?;
                *list = rest;
                Some(*first)
            }
            PropertySource::Wire(bytes) => {
                let mut reader = PacketReader::new(bytes);
                // Checked by `parse`, so this only ends at the end.
                let property = Property::read(&mut reader).ok()?;
                *bytes = reader.remainder();
                Some(property)
            }
        }
    }
}
