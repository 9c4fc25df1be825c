//! The owner of a stored session: the user who made it, or nobody if it is empty.
//!
//! The name of a client with a connect token stands behind a 0 byte, which no other user name has. Its session yields to every client
//! that proves another name or none.

const VISITOR: u8 = 0;

pub(crate) fn encode(user: Option<&str>, is_visitor: bool) -> Vec<u8> {
    let mark = if is_visitor { &[VISITOR][..] } else { &[] };
    [mark, user.unwrap_or_default().as_bytes()].concat()
}

pub(crate) fn is_visitor(owner: &[u8]) -> bool {
    owner.first() == Some(&VISITOR)
}

pub(crate) fn user(owner: &[u8]) -> Option<&str> {
    let name = owner.strip_prefix(&[VISITOR]).unwrap_or(owner);
    str::from_utf8(name).ok().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_comes_back_as_it_went_and_that_of_an_earlier_version_is_a_user() {
        for (name, is_page) in [(Some("bob"), false), (Some("console:eve"), true), (None, false)] {
            let owner = encode(name, is_page);
            assert_eq!((user(&owner), is_visitor(&owner)), (name, is_page));
        }
        assert_eq!(
            (user(b"bob"), is_visitor(b"bob"), encode(Some("bob"), false)),
            (Some("bob"), false, b"bob".into())
        );
    }
}
