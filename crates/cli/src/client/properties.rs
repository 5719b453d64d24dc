//! Properties as they are typed: `-D publish user-property unit celsius`.
//!
//! Names are those of the specification in small letters with dashes, as mosquitto's tools have them. Which property may
//! stand in which packet is asked of the codec.

use std::num::{NonZeroU16, NonZeroU32};

use anyhow::{Context, Result, bail};
use tidegate_wire_mqtt::Property;
use tidegate_wire_mqtt::property::{PayloadFormat, PropertyId, PropertySite};

/// A property that owns its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Typed {
    site: PropertySite,
    id: PropertyId,
    value: String,
    /// The value of a user property, whose name is in `value`.
    second: String,
}

const SITES: &[(&str, PropertySite)] = &[
    ("connect", PropertySite::Connect),
    ("will", PropertySite::Will),
    ("publish", PropertySite::Publish),
    ("subscribe", PropertySite::Subscribe),
    ("unsubscribe", PropertySite::Unsubscribe),
    ("disconnect", PropertySite::Disconnect),
];

/// Reads all words after all `-D`: a packet, a property and one value, or two for a user property.
pub(crate) fn parse(words: &[String]) -> Result<Vec<Typed>> {
    let mut words = words.iter();
    let mut typed = Vec::new();
    while let Some(packet) = words.next() {
        let packet = packet.to_lowercase();
        let (_, site) = SITES.iter().find(|(name, _)| *name == packet).with_context(|| {
            let known: Vec<&str> = SITES.iter().map(|(name, _)| *name).collect();
            format!("-D: {packet:?} is no packet with properties: expected {}", known.join(", "))
        })?;
        let name = words.next().context("-D: a property is missing")?;
        let id = id_of(name).with_context(|| format!("-D: no property is called {name:?}"))?;
        if !id.allowed_in(*site) {
            bail!("-D: {packet} has no property {name}");
        }
        let value = words.next().with_context(|| format!("-D {packet} {name}: a value is missing"))?.clone();
        let second = match id {
            PropertyId::UserProperty => words.next().context("-D: a user property has a name and a value")?.clone(),
            _ => String::new(),
        };
        let property = Typed { site: *site, id, value, second };
        property.property().with_context(|| format!("-D {packet} {name}: {:?} does not fit", property.value))?;
        typed.push(property);
    }
    Ok(typed)
}

/// The properties for one packet.
pub(crate) fn of_site(typed: &[Typed], site: PropertySite) -> Vec<Property<'_>> {
    typed.iter().filter(|typed| typed.site == site).filter_map(Typed::property).collect()
}

fn id_of(name: &str) -> Option<PropertyId> {
    let wanted = name.to_lowercase();
    PropertyId::ALL.iter().copied().find(|id| id.name().to_lowercase().replace(' ', "-") == wanted)
}

impl Typed {
    /// As the codec takes it; `None` if the text does not fit.
    fn property(&self) -> Option<Property<'_>> {
        let text = self.value.as_str();
        let number = || text.parse::<u32>().ok();
        let small = || text.parse::<u16>().ok();
        let flag = || match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        };
        Some(match self.id {
            PropertyId::PayloadFormat => {
                Property::PayloadFormat(if flag()? { PayloadFormat::Utf8 } else { PayloadFormat::Bytes })
            }
            PropertyId::MessageExpiry => Property::MessageExpiry(number()?),
            PropertyId::ContentType => Property::ContentType(text),
            PropertyId::ResponseTopic => Property::ResponseTopic(text),
            PropertyId::CorrelationData => Property::CorrelationData(text.as_bytes()),
            PropertyId::SubscriptionId => Property::SubscriptionId(NonZeroU32::new(number()?)?),
            PropertyId::SessionExpiry => Property::SessionExpiry(number()?),
            PropertyId::AuthenticationMethod => Property::AuthenticationMethod(text),
            PropertyId::AuthenticationData => Property::AuthenticationData(text.as_bytes()),
            PropertyId::RequestProblemInformation => Property::RequestProblemInformation(flag()?),
            PropertyId::WillDelay => Property::WillDelay(number()?),
            PropertyId::RequestResponseInformation => Property::RequestResponseInformation(flag()?),
            PropertyId::ReasonString => Property::ReasonString(text),
            PropertyId::ReceiveMaximum => Property::ReceiveMaximum(NonZeroU16::new(small()?)?),
            PropertyId::TopicAliasMaximum => Property::TopicAliasMaximum(small()?),
            PropertyId::TopicAlias => Property::TopicAlias(NonZeroU16::new(small()?)?),
            PropertyId::UserProperty => Property::UserProperty(text, &self.second),
            PropertyId::MaximumPacketSize => Property::MaximumPacketSize(NonZeroU32::new(number()?)?),
            // The rest is a server's to send.
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Vec<Typed>> {
        parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn several_properties_are_taken_apart() {
        let words = ["publish", "user-property", "unit", "celsius", "CONNECT", "receive-maximum", "10"];
        let typed = parsed(&words).unwrap();
        assert_eq!(of_site(&typed, PropertySite::Publish), [Property::UserProperty("unit", "celsius")]);
        let window = NonZeroU16::new(10).unwrap();
        assert_eq!(of_site(&typed, PropertySite::Connect), [Property::ReceiveMaximum(window)]);
        assert_eq!(of_site(&typed, PropertySite::Will), []);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let refused = |words: &[&str]| parsed(words).unwrap_err().to_string();
        assert!(refused(&["pub", "content-type", "x"]).contains("expected connect, will, publish"));
        assert_eq!(refused(&["publish", "colour", "x"]), "-D: no property is called \"colour\"");
        assert_eq!(refused(&["publish", "receive-maximum", "1"]), "-D: publish has no property receive-maximum");
        let text = refused(&["publish", "message-expiry-interval", "soon"]);
        assert_eq!(text, "-D publish message-expiry-interval: \"soon\" does not fit");
        assert_eq!(refused(&["publish", "user-property", "a"]), "-D: a user property has a name and a value");
    }
}
