//! Formats names, numbers and times for people.

/// Invalid UTF-8 is replaced.
pub(crate) fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Leaves visible characters only, and escapes the others as bash reads them between `$'` and `'`.
pub(crate) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => out += "\\\\",
                '\n' => out += "\\n",
                '\r' => out += "\\r",
                '\t' => out += "\\t",
                char if char.is_ascii_control() => out += &format!("\\x{:02x}", u32::from(char)),
                // Characters that the standard library escapes, too: controls, direction marks,
                // unassigned ones.
                char if !char.is_ascii() && char.escape_debug().len() > 1 => {
                    out += &format!("\\U{:08x}", u32::from(char));
                }
                char => out.push(char),
            }
        }
        for byte in chunk.invalid() {
            out += &format!("\\x{byte:02x}");
        }
    }
    out
}

/// The beginning of a text, with an ellipsis if something is left out.
pub(crate) fn head(bytes: &[u8], most: usize) -> String {
    if bytes.len() <= most {
        return escape(bytes);
    }
    // Cuts between characters: a character's further bytes are 0b10xxxxxx.
    let back = bytes[..=most].iter().rev().take(4).position(|byte| byte & 0xc0 != 0x80).unwrap_or(0);
    escape(&bytes[..most - back]) + "…"
}

pub(crate) fn quoted(text: &str) -> String {
    let escaped = escape(text.as_bytes());
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_-./:@%=,".contains(char);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.into()
    } else if escaped == text && !text.contains('\'') {
        format!("'{text}'")
    } else {
        format!("$'{}'", escaped.replace('\'', "\\'"))
    }
}

pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.char_indices() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn plural(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number < 1024 {
        return format!("{number} B");
    }
    let (mut value, mut unit) = (number as f64 / 1024.0, 0);
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

pub(crate) fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", count(seconds / 86_400)),
    }
}

pub(crate) fn distance(at_ms: u64, now_ms: u64) -> String {
    if at_ms > now_ms {
        format!("in {}", duration((at_ms - now_ms).div_ceil(1_000)))
    } else {
        format!("{} ago", duration((now_ms - at_ms) / 1_000))
    }
}

pub(crate) fn time(at_ms: u64, now_ms: u64) -> String {
    format!("{} ({})", rfc3339(at_ms), distance(at_ms, now_ms))
}

pub(crate) fn rfc3339(unix_ms: u64) -> String {
    let (days, seconds) = (unix_ms / 86_400_000, unix_ms / 1_000 % 86_400);
    // Years that begin in March have their leap day at the end; 400 of them always have 146097
    // days.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", era * 400 + year)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        for (bytes, text) in [
            (&b"sensor/1"[..], "sensor/1"),
            ("Küche °C 猫".as_bytes(), "Küche °C 猫"),
            (b"a\nb\t\x1b[31m\\", "a\\nb\\t\\x1b[31m\\\\"),
            ("\u{202e}\u{85}".as_bytes(), "\\U0000202e\\U00000085"),
            (b"\xff\xc3(", "\\xff\\xc3("),
            (b"'\"", "'\""),
        ] {
            assert_eq!(escape(bytes), text);
        }
    }

    #[test]
    fn a_head_ends_between_characters() {
        for (text, most, expected) in
            [("abc", 3, "abc"), ("abcd", 3, "abc…"), ("a°b", 2, "a…"), ("a°b", 3, "a°…"), ("猫猫", 5, "猫…")]
        {
            assert_eq!(head(text.as_bytes(), most), expected, "{text} {most}");
        }
        assert_eq!(head(&[0x80; 9], 5), "\\x80\\x80\\x80\\x80\\x80…");
    }

    #[test]
    fn a_name_can_be_copied_into_a_shell() {
        for (name, word) in [
            ("sensor-1", "sensor-1"),
            ("", "''"),
            ("a b", "'a b'"),
            ("$(x)", "'$(x)'"),
            ("it's", "$'it\\'s'"),
            ("a\n'\\", "$'a\\n\\'\\\\'"),
        ] {
            assert_eq!(quoted(name), word);
        }
    }

    #[test]
    fn numbers_have_units() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_024, "1.0 KiB"),
            (1_048_575, "1.0 MiB"),
            (1_572_864, "1.5 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
        for (seconds, text) in
            [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_600, "1 h"), (172_799, "47 h"), (604_800, "7 d")]
        {
            assert_eq!(duration(seconds), text);
        }
        assert_eq!(plural(1, "message", "messages"), "1 message");
    }

    #[test]
    fn times_are_dates_and_distances() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_795_219_199, "2026-11-20T23:59:59Z"),
            (4_102_444_800, "2100-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(unix_s * 1_000), text);
        }
        assert_eq!(time(1_000, 61_999), "1970-01-01T00:00:01Z (1 min ago)");
        assert_eq!(distance(61_000, 1_000), "in 1 min");
    }
}
