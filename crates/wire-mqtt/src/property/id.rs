//! The identifiers of table 2-4, and the places where each property may stand.

/// A place that has a list of properties: a packet, or the will inside CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PropertySite {
    /// CONNECT itself.
    Connect,
    /// The will inside CONNECT.
    Will,
    /// CONNACK.
    ConnAck,
    /// PUBLISH.
    Publish,
    /// PUBACK.
    PubAck,
    /// PUBREC.
    PubRec,
    /// PUBREL.
    PubRel,
    /// PUBCOMP.
    PubComp,
    /// SUBSCRIBE.
    Subscribe,
    /// SUBACK.
    SubAck,
    /// UNSUBSCRIBE.
    Unsubscribe,
    /// UNSUBACK.
    UnsubAck,
    /// DISCONNECT.
    Disconnect,
    /// AUTH.
    Auth,
}

impl PropertySite {
    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

const CONNECT: u16 = PropertySite::Connect.bit();
const WILL: u16 = PropertySite::Will.bit();
const CONNACK: u16 = PropertySite::ConnAck.bit();
const PUBLISH: u16 = PropertySite::Publish.bit();
const SUBSCRIBE: u16 = PropertySite::Subscribe.bit();
const DISCONNECT: u16 = PropertySite::Disconnect.bit();
const AUTH: u16 = PropertySite::Auth.bit();
/// The packets that say how something went, all but CONNECT, PUBLISH and the two requests.
const ANSWERS: u16 = ALL & !(CONNECT | WILL | PUBLISH | SUBSCRIBE | PropertySite::Unsubscribe.bit());
const ALL: u16 = 0x3fff;

macro_rules! property_ids {
    ($($name:ident = $id:literal, $text:literal, $sites:expr;)+) => {
        /// Identifier of a property.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum PropertyId {
            $(#[doc = $text] $name = $id,)+
        }

        impl PropertyId {
            /// All identifiers, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// From the number on the wire. It is a variable byte integer, but all that exist take one byte.
            #[inline]
            pub const fn from_byte(id: u8) -> Option<Self> {
                match id {
                    $($id => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// Name as the specification writes it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            const fn sites(self) -> u16 {
                match self {
                    $(Self::$name => $sites,)+
                }
            }
        }
    };
}

property_ids! {
    PayloadFormat = 1, "Payload Format Indicator", PUBLISH | WILL;
    MessageExpiry = 2, "Message Expiry Interval", PUBLISH | WILL;
    ContentType = 3, "Content Type", PUBLISH | WILL;
    ResponseTopic = 8, "Response Topic", PUBLISH | WILL;
    CorrelationData = 9, "Correlation Data", PUBLISH | WILL;
    SubscriptionId = 11, "Subscription Identifier", PUBLISH | SUBSCRIBE;
    SessionExpiry = 17, "Session Expiry Interval", CONNECT | CONNACK | DISCONNECT;
    AssignedClientId = 18, "Assigned Client Identifier", CONNACK;
    ServerKeepAlive = 19, "Server Keep Alive", CONNACK;
    AuthenticationMethod = 21, "Authentication Method", CONNECT | CONNACK | AUTH;
    AuthenticationData = 22, "Authentication Data", CONNECT | CONNACK | AUTH;
    RequestProblemInformation = 23, "Request Problem Information", CONNECT;
    WillDelay = 24, "Will Delay Interval", WILL;
    RequestResponseInformation = 25, "Request Response Information", CONNECT;
    ResponseInformation = 26, "Response Information", CONNACK;
    ServerReference = 28, "Server Reference", CONNACK | DISCONNECT;
    ReasonString = 31, "Reason String", ANSWERS;
    ReceiveMaximum = 33, "Receive Maximum", CONNECT | CONNACK;
    TopicAliasMaximum = 34, "Topic Alias Maximum", CONNECT | CONNACK;
    TopicAlias = 35, "Topic Alias", PUBLISH;
    MaximumQos = 36, "Maximum QoS", CONNACK;
    RetainAvailable = 37, "Retain Available", CONNACK;
    UserProperty = 38, "User Property", ALL;
    MaximumPacketSize = 39, "Maximum Packet Size", CONNECT | CONNACK;
    WildcardAvailable = 40, "Wildcard Subscription Available", CONNACK;
    SubscriptionIdsAvailable = 41, "Subscription Identifier Available", CONNACK;
    SharedAvailable = 42, "Shared Subscription Available", CONNACK;
}

impl PropertyId {
    /// True if a list at this place may contain the property.
    #[inline]
    pub const fn allowed_in(self, site: PropertySite) -> bool {
        self.sites() & site.bit() != 0
    }

    /// True if a list at this place may contain the property more than once.
    #[inline]
    pub const fn repeats_in(self, site: PropertySite) -> bool {
        // A message that matches several subscriptions carries the identifier of each (section 3.3.2.3.8).
        matches!((self, site), (Self::UserProperty, _) | (Self::SubscriptionId, PropertySite::Publish))
    }

    /// One bit of a set of identifiers.
    #[inline]
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_read_back() {
        assert_eq!(PropertyId::ALL.len(), 27);
        for &id in PropertyId::ALL {
            assert_eq!(PropertyId::from_byte(id as u8), Some(id));
        }
    }

    #[test]
    fn counts_per_place_match_table_2_4() {
        let count = |site| PropertyId::ALL.iter().filter(|id| id.allowed_in(site)).count();
        assert_eq!(count(PropertySite::Connect), 9);
        assert_eq!(count(PropertySite::Will), 7);
        assert_eq!(count(PropertySite::ConnAck), 17);
        assert_eq!(count(PropertySite::Publish), 8);
        assert_eq!(count(PropertySite::PubRel), 2);
        assert_eq!(count(PropertySite::Subscribe), 2);
        assert_eq!(count(PropertySite::SubAck), 2);
        assert_eq!(count(PropertySite::Unsubscribe), 1);
        assert_eq!(count(PropertySite::UnsubAck), 2);
        assert_eq!(count(PropertySite::Disconnect), 4);
        assert_eq!(count(PropertySite::Auth), 4);
    }
}
