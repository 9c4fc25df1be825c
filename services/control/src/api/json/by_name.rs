//! Refuses a JSON array where a struct is expected. serde's derive would read the struct's fields from the array by their
//! order, which the API does not promise. Errors quote only the start of a long text.

use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess, Unexpected,
    VariantAccess, Visitor,
};

use crate::api::problem::quoted;

/// Wraps a deserializer, visitor, seed or access of serde, and wraps those that it passes on. Keys stay bare: they are strings.
pub(super) struct ByName<T>(pub(super) T);

/// An error whose message quotes a text of the body only in short: Debug would write each control character of it as six.
#[derive(Debug)]
pub(super) struct Brief<E>(pub(super) E);

impl<E: Error> Error for Brief<E> {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self(E::custom(text))
    }

    fn invalid_type(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self(briefly(found, |found| E::invalid_type(found, wanted)))
    }

    fn invalid_value(found: Unexpected<'_>, wanted: &dyn Expected) -> Self {
        Self(briefly(found, |found| E::invalid_value(found, wanted)))
    }

    fn unknown_variant(found: &str, wanted: &'static [&'static str]) -> Self {
        Self(E::unknown_variant(&quoted(found), wanted))
    }
}

fn briefly<E>(found: Unexpected<'_>, error: impl FnOnce(Unexpected<'_>) -> E) -> E {
    match found {
        Unexpected::Str(text) => error(Unexpected::Str(&quoted(text))),
        found => error(found),
    }
}

impl<E: fmt::Display> fmt::Display for Brief<E> {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(text)
    }
}

impl<E: std::error::Error> std::error::Error for Brief<E> {}

/// JSON says what a value is, so all of these read whatever is there. serde_json itself would quote a long text whole if it were
/// asked for a number.
macro_rules! read_any {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, Self::Error> {
            $(let _ = $name;)*
            self.deserialize_any(visitor)
        })*
    };
}

macro_rules! read {
    ($($method:ident($($name:ident: $type:ty),*);)*) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, Self::Error> {
            self.0.$method($($name,)* ByName(visitor)).map_err(Brief)
        })*
    };
}

macro_rules! visit {
    ($($method:ident($type:ty);)*) => {
        $(fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.0.$method(value).map_err(|Brief(error)| error)
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for ByName<D> {
    type Error = Brief<D::Error>;

    read! {
        deserialize_any();
        deserialize_i128();
        deserialize_u128();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_newtype_struct(name: &'static str);
        deserialize_enum(name: &'static str, variants: &'static [&'static str]);
        deserialize_identifier();
        deserialize_ignored_any();
    }

    read_any! {
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_f32();
        deserialize_f64();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(length: usize);
        deserialize_tuple_struct(name: &'static str, length: usize);
        deserialize_map();
        deserialize_struct(name: &'static str, fields: &'static [&'static str]);
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for ByName<V> {
    type Value = V::Value;

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(text)
    }

    visit! {
        visit_bool(bool);
        visit_i64(i64);
        visit_i128(i128);
        visit_u64(u64);
        visit_u128(u128);
        visit_f64(f64);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none().map_err(|Brief(error)| error)
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit().map_err(|Brief(error)| error)
    }

    fn visit_some<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(ByName(value)).map_err(|Brief(error)| error)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, value: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(ByName(value)).map_err(|Brief(error)| error)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<V::Value, A::Error> {
        match is_object(&self.0) {
            true => Err(A::Error::invalid_type(Unexpected::Seq, &self.0)),
            false => self.0.visit_seq(ByName(items)).map_err(|Brief(error)| error),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(ByName(fields)).map_err(|Brief(error)| error)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.0.visit_enum(ByName(variant)).map_err(|Brief(error)| error)
    }
}

/// serde has no other sign of a struct than the text that its derive puts into errors.
fn is_object(visitor: &dyn Expected) -> bool {
    let expected = visitor.to_string();
    expected.starts_with("struct ") || expected.starts_with("internally tagged ")
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for ByName<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(ByName(value)).map_err(|Brief(error)| error)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for ByName<A> {
    type Error = Brief<A::Error>;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Self::Error> {
        self.0.next_element_seed(ByName(seed)).map_err(Brief)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for ByName<A> {
    type Error = Brief<A::Error>;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        self.0.next_key_seed(seed).map_err(Brief)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Self::Error> {
        self.0.next_value_seed(ByName(seed)).map_err(Brief)
    }
}

impl<'de, A: EnumAccess<'de>> EnumAccess<'de> for ByName<A> {
    type Error = Brief<A::Error>;
    type Variant = ByName<A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), Self::Error> {
        let (value, variant) = self.0.variant_seed(ByName(seed)).map_err(Brief)?;
        Ok((value, ByName(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for ByName<A> {
    type Error = Brief<A::Error>;

    fn unit_variant(self) -> Result<(), Self::Error> {
        self.0.unit_variant().map_err(Brief)
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Self::Error> {
        self.0.newtype_variant_seed(ByName(seed)).map_err(Brief)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.tuple_variant(length, ByName(visitor)).map_err(Brief)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.0.struct_variant(fields, ByName(visitor)).map_err(Brief)
    }
}
