//! Typed accessors: one method per property, `None` when it was not sent. Defaults are the business of whoever asks.

use core::num::{NonZeroU16, NonZeroU32};

use super::id::PropertyId;
use super::list::Properties;
use super::value::{PayloadFormat, Property};
use crate::qos::QoS;

macro_rules! accessors {
    ($($method:ident: $variant:ident -> $type:ty;)+) => {
        impl<'a> Properties<'a> {
            $(
                #[doc = concat!("The value of [`PropertyId::", stringify!($variant), "`].")]
                #[inline]
                pub fn $method(&self) -> Option<$type> {
                    match self.find(PropertyId::$variant)? {
                        Property::$variant(value) => Some(value),
                        _ => None,
                    }
                }
            )+
        }
    };
}

accessors! {
    payload_format: PayloadFormat -> PayloadFormat;
    message_expiry: MessageExpiry -> u32;
    content_type: ContentType -> &'a str;
    response_topic: ResponseTopic -> &'a str;
    correlation_data: CorrelationData -> &'a [u8];
    subscription_id: SubscriptionId -> NonZeroU32;
    session_expiry: SessionExpiry -> u32;
    assigned_client_id: AssignedClientId -> &'a str;
    server_keep_alive: ServerKeepAlive -> u16;
    authentication_method: AuthenticationMethod -> &'a str;
    authentication_data: AuthenticationData -> &'a [u8];
    request_problem_information: RequestProblemInformation -> bool;
    will_delay: WillDelay -> u32;
    request_response_information: RequestResponseInformation -> bool;
    response_information: ResponseInformation -> &'a str;
    server_reference: ServerReference -> &'a str;
    reason_string: ReasonString -> &'a str;
    receive_maximum: ReceiveMaximum -> NonZeroU16;
    topic_alias_maximum: TopicAliasMaximum -> u16;
    topic_alias: TopicAlias -> NonZeroU16;
    maximum_qos: MaximumQos -> QoS;
    retain_available: RetainAvailable -> bool;
    maximum_packet_size: MaximumPacketSize -> NonZeroU32;
    wildcard_available: WildcardAvailable -> bool;
    subscription_ids_available: SubscriptionIdsAvailable -> bool;
    shared_available: SharedAvailable -> bool;
}

impl<'a> Properties<'a> {
    /// All user properties, in order; names may repeat.
    pub fn user_properties(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        self.iter().filter_map(|property| match property {
            Property::UserProperty(name, value) => Some((name, value)),
            _ => None,
        })
    }

    /// All subscription identifiers of a PUBLISH, in order.
    pub fn subscription_ids(&self) -> impl Iterator<Item = NonZeroU32> + use<'a> {
        self.iter().filter_map(|property| match property {
            Property::SubscriptionId(id) => Some(id),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::PropertySite;
    use super::*;
    use crate::limits::Limits;

    #[test]
    fn accessors_find_what_was_sent_and_nothing_else() {
        let bytes = b"\x21\x00\x05\x26\x00\x01a\x00\x01b\x26\x00\x01a\x00\x01c\x11\x00\x00\x00\x0a";
        let list = Properties::parse(bytes, PropertySite::Connect, &Limits::default()).unwrap();
        assert_eq!(list.receive_maximum(), NonZeroU16::new(5));
        assert_eq!(list.session_expiry(), Some(10));
        assert_eq!(list.maximum_packet_size(), None);
        assert!(list.user_properties().eq([("a", "b"), ("a", "c")]));
    }

    #[test]
    fn wire_and_typed_lists_are_equal() {
        let typed = [Property::TopicAlias(NonZeroU16::MIN), Property::ContentType("x")];
        let wire = Properties::parse(b"\x23\x00\x01\x03\x00\x01x", PropertySite::Publish, &Limits::default()).unwrap();
        assert_eq!(wire, Properties::new(&typed));
        let reordered = [typed[1], typed[0]];
        assert_ne!(wire, Properties::new(&reordered));
    }

    #[test]
    fn an_encoded_list_reads_back_and_garbage_ends_quietly() {
        let typed = [Property::MessageExpiry(7), Property::UserProperty("k", "v")];
        let mut bytes = alloc::vec::Vec::new();
        Properties::new(&typed).encode(&mut bytes, |_| true);
        assert_eq!(Properties::from_encoded(&bytes), Properties::new(&typed));
        assert_eq!(Properties::from_encoded(b"\x02\x00\x00\x00\x07\xff\xff").iter().count(), 1);
    }
}
