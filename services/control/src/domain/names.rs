//! Names that people choose. A name must look like what it is, so that nobody can imitate another name.

use millrace_access::model::is_invisible;
use unicode_normalization::is_nfc;
use unicode_security::GeneralSecurityProfile as _;
use unicode_security::MixedScript as _;
use unicode_security::general_security_profile::IdentifierType;
use unicode_security::mixed_script::is_potential_mixed_script_confusable_char as is_look_alike;
use unicode_security::{RestrictionLevel, RestrictionLevelDetection as _, skeleton};

const ZERO_WIDTH_JOINER: char = '\u{200D}';
/// Variation selector: shows the symbol before it as a picture.
const AS_PICTURE: char = '\u{FE0F}';

/// Refuses invisible characters, direction overrides, and mixed scripts whose characters look alike (Unicode Technical
/// Standard 39). The error says what to change.
pub(super) fn check(name: &str) -> Result<(), String> {
    let mut before = None;
    for letter in name.chars() {
        if is_hidden(letter) && !(is_in_pictures(letter) && before.is_some_and(is_symbol)) {
            let number = u32::from(letter);
            return Err(format!("has a character that does not show (U+{number:04X}): take it out"));
        }
        before = Some(letter);
    }
    one_alphabet(name)
}

/// Checks a name that servers compare byte by byte, such as a user name. Besides [`check`], each character has one form.
pub(super) fn plain(name: &str) -> Result<(), String> {
    check(name)?;
    if !is_nfc(name) {
        return Err("has an accent apart from its letter: write both as one character (Unicode NFC)".into());
    }
    let stands_for_another = |letter: &char| {
        letter.is_alphanumeric() && letter.identifier_type() == Some(IdentifierType::Not_NFKC)
    };
    if let Some(letter) = name.chars().find(stands_for_another) {
        let number = u32::from(letter);
        return Err(format!(
            "has \"{letter}\" (U+{number:04X}), a form of another letter or digit: write that one"
        ));
    }
    Ok(())
}

/// The ASCII name that a name in another alphabet looks like.
pub(super) fn look_alike(name: &str) -> Option<String> {
    let mut alike = String::with_capacity(name.len());
    for letter in name.chars() {
        // The skeleton of ASCII differs from it: it has `rn` for `m`.
        match letter.is_ascii() {
            true => alike.push(letter),
            false => alike.extend(skeleton(letter.encode_utf8(&mut [0; 4]))),
        }
    }
    (alike != name && alike.is_ascii()).then_some(alike)
}

fn one_alphabet(name: &str) -> Result<(), String> {
    match name.split(|letter: char| !letter.is_alphanumeric()).find(|word| is_mixed(word)) {
        Some(word) => {
            Err(format!("mixes alphabets that look alike in the word \"{word}\": use one for each word"))
        }
        None => Ok(()),
    }
}

fn is_hidden(letter: char) -> bool {
    let kind = letter.identifier_type();
    letter.is_control()
        || is_invisible(letter)
        || matches!(kind, Some(IdentifierType::Default_Ignorable | IdentifierType::Deprecated))
}

fn is_in_pictures(letter: char) -> bool {
    matches!(letter, ZERO_WIDTH_JOINER | AS_PICTURE)
}

fn is_symbol(letter: char) -> bool {
    !letter.is_ascii() && !letter.is_alphanumeric() && !letter.is_whitespace()
}

/// Whether a part of a name mixes two scripts with characters that look alike. Chinese, Japanese and Korean text may
/// contain Latin characters (UTS 39, "highly restrictive").
fn is_mixed(word: &str) -> bool {
    !word.is_single_script()
        && word.detect_restriction_level() > RestrictionLevel::HighlyRestrictive
        && word.chars().any(|letter| !letter.is_ascii() && is_look_alike(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_world_are_names() {
        for name in [
            "Plant 7",
            "Werk Süd, Halle 3",
            "Насос pump-7",
            "Αθήνα 2",
            "東京AI工場",
            "서울 3",
            "مصنع 1",
            "Åse O'Neill",
            "⚙️ Gears",
            "👩‍🔧 Ann",
            "50 % off",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn what_looks_like_another_name_is_none() {
        for name in [
            "pаypal",
            "Αnn",
            "Ann\u{200B}",
            "Ann\u{200D}a",
            "Ann\u{202E}nib",
            "\u{2066}Ann",
            "Ann\u{FEFF}",
            "\u{3164}",
            "\u{2800}",
            "a\nb",
            "a\u{2028}b",
            "a\u{E0041}",
        ] {
            assert!(check(name).is_err(), "{}", name.escape_unicode());
        }
    }

    #[test]
    fn a_name_that_is_compared_byte_by_byte_has_one_form() {
        for name in
            ["pump-7", "Насос-7", "насос 7", "kæde", "dåse/é", "東京AI", "مصنع", "straße", "m/2 %", "рыба"]
        {
            assert_eq!(plain(name), Ok(()), "{name}");
        }
        for name in [
            "ｐｕｍｐ",
            "𝐚𝐝𝐦𝐢𝐧",
            "pump-７",
            "ⓐdmin",
            "e\u{301}cole",
            "pump\u{3164}",
            "a\u{34F}b",
            "pump\u{FE0F}",
            "pаypal",
        ] {
            assert!(plain(name).is_err(), "{}", name.escape_unicode());
        }
    }

    #[test]
    fn a_name_in_another_alphabet_may_look_like_one_in_ascii() {
        for (name, expected) in [("сору-m1", Some("copy-m1")), ("pump", None), ("рыба", None), ("東京", None)]
        {
            assert_eq!(look_alike(name).as_deref(), expected, "{name}");
        }
    }
}
