use super::*;

const TOO_LONG: DecodeError = DecodeError::Malformed("a variable byte integer has more than four bytes");
const NOT_MINIMAL: DecodeError = DecodeError::Malformed("a variable byte integer is longer than it need be");

#[test]
fn variable_byte_integers_take_the_fewest_bytes() {
    //= [MQTT-1.5.5-1] v5
    let table: &[(usize, &[u8])] = &[
        (0, &[0x00]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xFF, 0xFF, 0x7F]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (268_435_455, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ];
    for &(value, bytes) in table {
        let mut out = Vec::new();
        put_var_int(value, &mut out);
        assert_eq!(out, bytes, "{value}");
        assert_eq!(var_int_len(value), bytes.len(), "{value}");
        assert_eq!(read_var_int(bytes), Ok(Some((value as u32, bytes.len()))), "{value}");
        for cut in 0..bytes.len() {
            assert_eq!(read_var_int(&bytes[..cut]), Ok(None), "{value} cut to {cut}");
        }
    }
}

#[test]
fn longer_encodings_of_variable_byte_integers_are_malformed() {
    //= [MQTT-1.5.5-1] v5
    for bytes in [&[0x80, 0x00][..], &[0xFF, 0x00], &[0x80, 0x80, 0x00], &[0xFF, 0xFF, 0xFF, 0x00]] {
        assert_eq!(read_var_int(bytes), Err(NOT_MINIMAL), "{bytes:02X?}");
    }
    for bytes in [&[0x80; 4][..], &[0xFF; 4], &[0x80, 0x80, 0x80, 0x80, 0x01]] {
        assert_eq!(read_var_int(bytes), Err(TOO_LONG), "{bytes:02X?}");
    }
}

#[test]
fn strings_are_well_formed_utf8_without_nul() {
    //= [MQTT-1.5.4-1] v5
    //= [MQTT-1.5.4-2] v5
    //= [MQTT-1.5.3-1] v3.1.1
    //= [MQTT-1.5.3-2] v3.1.1
    let table: &[(&[u8], bool)] = &[
        (b"\0\0", true),
        (b"\0\x03a/b", true),
        ("\0\u{4}\u{1F980}".as_bytes(), true),
        // U+D800 and U+DFFF, which are surrogates.
        (b"\0\x03\xED\xA0\x80", false),
        (b"\0\x03\xED\xBF\xBF", false),
        // `/` in two bytes, a lone continuation, a character cut short, a byte that UTF-8 never
        // has.
        (b"\0\x02\xC0\xAF", false),
        (b"\0\x01\x80", false),
        (b"\0\x02\xE2\x82", false),
        (b"\0\x01\xFF", false),
        (b"\0\x01\0", false),
        (b"\0\x03a\0b", false),
        // A length that is cut, or over what is there.
        (b"", false),
        (b"\0", false),
        (b"\0\x04abc", false),
    ];
    for &(bytes, good) in table {
        assert_eq!(Reader::new(bytes).string().is_ok(), good, "{bytes:02X?}");
    }
}

#[test]
fn a_byte_order_mark_is_a_character_like_any_other() {
    //= [MQTT-1.5.4-3] v5
    //= [MQTT-1.5.3-3] v3.1.1
    let text = Reader::new(b"\0\x04\xEF\xBB\xBFa").string();
    assert_eq!(text, Ok("\u{FEFF}a"));
    let mut out = Vec::new();
    put_string("\u{FEFF}a", &mut out);
    assert_eq!(out, b"\0\x04\xEF\xBB\xBFa");
}

#[test]
fn text_over_the_limit_is_cut_between_characters() {
    let long = "é".repeat(40_000);
    assert_eq!(fit(&long).len(), 65_534);
    assert_eq!(fit(&long[..65_534]).len(), 65_534);
    assert_eq!(fit("short"), "short");
}
