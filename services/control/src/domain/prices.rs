//! Prices of usage. The operator sets them; by default usage is free.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;
use utoipa::ToSchema;

use super::Control;
use super::usage::Sum;

/// Prices of a million units each, in millionths of the region's currency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prices {
    connected_session_minutes: u64,
    stored_session_minutes: u64,
    messages_in: u64,
    messages_delivered: u64,
    bytes: u64,
    stored_byte_hours: u64,
    retained_byte_hours: u64,
}

/// One price as the operator's setting writes it: `messages_in=1000000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Price {
    unit: &'static str,
    micros: u64,
}

/// ISO 4217 code of a currency, such as `EUR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Currency([u8; 3]);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct UnitPrice {
    /// Unit, named like the field of the usage; `bytes` counts both directions.
    #[schema(example = "messages_in")]
    pub unit: String,
    /// Price of a million units, in millionths of the region's currency.
    pub micros_per_million: u64,
}

impl Control {
    pub(crate) fn price_list(&self) -> Vec<UnitPrice> {
        let all = self.prices();
        let price = |unit: &str, micros_per_million| UnitPrice { unit: unit.into(), micros_per_million };
        vec![
            price("connected_session_minutes", all.connected_session_minutes),
            price("stored_session_minutes", all.stored_session_minutes),
            price("messages_in", all.messages_in),
            price("messages_delivered", all.messages_delivered),
            price("bytes", all.bytes),
            price("stored_byte_hours", all.stored_byte_hours),
            price("retained_byte_hours", all.retained_byte_hours),
        ]
    }
}

const UNITS: [&str; 7] = [
    "connected_session_minutes",
    "stored_session_minutes",
    "messages_in",
    "messages_delivered",
    "bytes",
    "stored_byte_hours",
    "retained_byte_hours",
];

impl FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, micros) = text.split_once('=').unwrap_or((text, ""));
        let unit = UNITS.into_iter().find(|unit| *unit == name);
        let price = unit.zip(micros.parse().ok()).map(|(unit, micros)| Self { unit, micros });
        price.ok_or_else(|| {
            format!("a unit, = and the price of a million of it is allowed, such as messages_in=1000000; units are {}", UNITS.join(", "))
        })
    }
}

impl FromStr for Currency {
    type Err = String;

    fn from_str(code: &str) -> Result<Self, String> {
        let letters = <[u8; 3]>::try_from(code.as_bytes()).ok();
        let letters = letters.filter(|letters| letters.iter().all(u8::is_ascii_uppercase));
        letters.map(Self).ok_or_else(|| "three capital letters are allowed, such as EUR (ISO 4217)".into())
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|letter| write!(f, "{}", char::from(*letter)))
    }
}

impl FromIterator<Price> for Prices {
    fn from_iter<I: IntoIterator<Item = Price>>(prices: I) -> Self {
        let mut all = Self::default();
        for Price { unit, micros } in prices {
            match unit {
                "connected_session_minutes" => all.connected_session_minutes = micros,
                "stored_session_minutes" => all.stored_session_minutes = micros,
                "messages_in" => all.messages_in = micros,
                "messages_delivered" => all.messages_delivered = micros,
                "bytes" => all.bytes = micros,
                "stored_byte_hours" => all.stored_byte_hours = micros,
                _ => all.retained_byte_hours = micros,
            }
        }
        all
    }
}

impl Prices {
    /// Millionths of the currency, rounded down.
    pub(super) fn of(&self, sum: &Sum) -> u64 {
        let bytes = sum.bytes_in.saturating_add(sum.bytes_out);
        // Each tuple: usage, price, and the amount that makes one unit.
        let parts = [
            (sum.connected_ms, self.connected_session_minutes, 60_000),
            (sum.stored_session_ms, self.stored_session_minutes, 60_000),
            (sum.messages_in, self.messages_in, 1),
            (sum.messages_delivered, self.messages_delivered, 1),
            (bytes, self.bytes, 1),
            (sum.stored_byte_s, self.stored_byte_hours, 3_600),
            (sum.retained_byte_s, self.retained_byte_hours, 3_600),
        ];
        let cost = |(used, price, unit): (u64, u64, u128)| u128::from(used) * u128::from(price) / unit;
        let all = parts.into_iter().map(cost).fold(0, u128::saturating_add) / 1_000_000;
        u64::try_from(all).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_price_is_of_a_million_of_its_unit() {
        let cases = [
            ("connected_session_minutes", Sum { connected_ms: 60_000 * 2_000_000, ..Sum::default() }),
            ("stored_session_minutes", Sum { stored_session_ms: 60_000 * 2_000_000, ..Sum::default() }),
            ("messages_in", Sum { messages_in: 2_000_000, ..Sum::default() }),
            ("messages_delivered", Sum { messages_delivered: 2_000_000, ..Sum::default() }),
            ("bytes", Sum { bytes_in: 500_000, bytes_out: 1_500_000, ..Sum::default() }),
            ("stored_byte_hours", Sum { stored_byte_s: 3_600 * 2_000_000, ..Sum::default() }),
            ("retained_byte_hours", Sum { retained_byte_s: 3_600 * 2_000_000, ..Sum::default() }),
        ];
        for (unit, sum) in cases {
            let price: Price = format!("{unit}=7").parse().unwrap();
            assert_eq!(Prices::from_iter([price]).of(&sum), 14, "{unit}");
            assert_eq!(Prices::default().of(&sum), 0, "{unit}");
        }
    }

    #[test]
    fn a_price_that_is_none_is_not_taken() {
        for wrong in ["", "messages_in", "messages_in=", "messages_in=1.5", "messages=1", "=1"] {
            assert!(wrong.parse::<Price>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_currency_is_a_code_of_three_letters() {
        assert_eq!("EUR".parse::<Currency>().map(|code| code.to_string()).as_deref(), Ok("EUR"));
        for wrong in ["", "EU", "EURO", "eur", "€", "EU1"] {
            assert!(wrong.parse::<Currency>().is_err(), "{wrong}");
        }
    }
}
