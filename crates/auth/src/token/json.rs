//! JSON in which no name stands twice: two readers that take another one of two would disagree about who somebody is.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::TokenFault;

/// The object that these bytes are, and nothing after it.
pub(super) fn object(bytes: &[u8]) -> Result<Map<String, Value>, TokenFault> {
    match serde_json::from_slice::<UniqueValue>(bytes) {
        Ok(UniqueValue(Value::Object(object))) => Ok(object),
        Err(error) if error.to_string().starts_with(TWICE) => Err(TokenFault::Twice),
        Ok(_) | Err(_) => Err(TokenFault::NotAToken),
    }
}

const TWICE: &str = "a name stands twice";

/// A value without repeated names, however deep; the parser bounds how deep.
struct UniqueValue(Value);

impl<'de> Deserialize<'de> for UniqueValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(UniqueValue(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some((name, UniqueValue(value))) = map.next_entry::<String, _>()? {
            if object.insert(name, value).is_some() {
                return Err(A::Error::custom(TWICE));
            }
        }
        Ok(Value::Object(object))
    }
}
