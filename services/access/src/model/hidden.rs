//! Values that logs and error messages must not show.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;

/// Text such as a hash or a key, which JSON shows and `Debug` does not.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HiddenText(Box<str>);

/// Bytes compared in constant time, which JSON shows in base64 and `Debug` does not.
#[derive(Clone, Copy)]
pub struct HiddenBytes<const N: usize>(pub [u8; N]);

impl HiddenText {
    /// Returns the text, which the caller must keep out of logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for HiddenText {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<String> for HiddenText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl<const N: usize> fmt::Debug for HiddenBytes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl<const N: usize> PartialEq for HiddenBytes<N> {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl<const N: usize> Eq for HiddenBytes<N> {}

impl<const N: usize> Serialize for HiddenBytes<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(self.0))
    }
}

impl<'de, const N: usize> Deserialize<'de> for HiddenBytes<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes()).map_err(|_| D::Error::custom("not base64"))?;
        bytes.try_into().map(Self).map_err(|_| D::Error::custom(format_args!("not {N} bytes")))
    }
}
