//! Finds a field that an object has twice. serde refuses this for structs alone: in a map the last one would silently count.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_ignored::Path;

/// Returns the path of the first field that is there more than once. `body` must be JSON.
pub(super) fn find(body: &[u8]) -> Option<String> {
    let mut found = None;
    let scan = Scan { at: &Path::Root, found: &mut found };
    let _ = scan.deserialize(&mut serde_json::Deserializer::from_slice(body));
    found
}

struct Scan<'a> {
    /// Written out for a repeated field alone: a path may be as long as the body.
    at: &'a Path<'a>,
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Scan<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scan<'_> {
    type Value = ();

    fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        text.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let is_twice = seen.contains(&key);
            let at = Path::Map { parent: self.at, key };
            if is_twice && self.found.is_none() {
                *self.found = Some(super::field(&at));
            }
            map.next_value_seed(Scan { at: &at, found: self.found })?;
            if let Path::Map { key, .. } = at {
                seen.insert(key);
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        loop {
            let at = Path::Seq { parent: self.at, index };
            if items.next_element_seed(Scan { at: &at, found: self.found })?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_field_that_is_there_twice_is_found_wherever_it_is() {
        for (body, expected) in [
            (r#"{"a":1,"b":{"a":[{"a":null},{"a":true}]},"c":"a"}"#, None),
            (r#"{"a":1,"a":1}"#, Some("a")),
            (r#"{"a":{"b":1,"c":{},"b":2}}"#, Some("a.b")),
            (r#"{"a":[{"b":1},{"b":1,"b":-1.5}]}"#, Some("a[1].b")),
            (r#"{"a":1,"\u0061":2,"b":1,"b":1}"#, Some("a")),
            ("[]", None),
        ] {
            assert_eq!(find(body.as_bytes()).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn a_long_key_is_not_copied_for_each_value_below_it() {
        let (key, items) = ("k".repeat(100_000), "0,".repeat(1_000));
        let body = format!(r#"{{"limits":{{"{key}":[{items}0],"a":{{"{key}":{{"b":[{items}0]}}}}}}}}"#);
        let mut found = None;
        let used = allocation_counter::measure(|| found = find(body.as_bytes()));
        assert_eq!(found, None);
        assert!(used.bytes_total < 4 * body.len() as u64, "{} of {} bytes", used.bytes_total, body.len());
    }
}
