//! Percent coding in URLs, headers and the names of nodes. Decoding is strict: it refuses bytes that should be written
//! as `%XX`.

use percent_encoding::{
    AsciiSet, NON_ALPHANUMERIC, PercentEncode, percent_decode_str, utf8_percent_encode,
};

/// The bytes that are written as `%XX`: all but letters, digits and `-._~/:`.
const CODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/')
    .remove(b':');
/// The same, of a text that is encoded already.
const STRAY: &AsciiSet = &CODED.remove(b'%');

/// Returns whether this text writes every byte as `%XX` that has to be.
pub(crate) fn is_encoded(text: &str) -> bool {
    utf8_percent_encode(text, STRAY).to_string() == text
}

/// Encodes everything but plain letters as `%XX`.
#[cfg_attr(
    not(any(
        test,
        feature = "http",
        feature = "kubernetes",
        feature = "_connection"
    )),
    expect(dead_code, reason = "the URL of a bucket is only read")
)]
pub(crate) fn encode(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, CODED)
}

/// Decodes `%XX`. Returns `None` for a `%` without two hexadecimal digits, and for bytes that are not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let is_digit = |digit: Option<&u8>| digit.is_some_and(u8::is_ascii_hexdigit);
    let mut marks = text.split('%').skip(1).map(str::as_bytes);
    let is_whole = marks.all(|rest| is_digit(rest.first()) && is_digit(rest.get(1)));
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.ok().filter(|_| is_whole).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_has_plain_letters_only() {
        let text = "a é;,= %/:?#@\u{202e}";
        let written = encode(text).to_string();
        assert_eq!(decode(&written).as_deref(), Some(text));
        assert!(is_encoded(&written) && !is_encoded(text));
        let plain = "aZ9-._~/:";
        assert_eq!(encode(plain).to_string(), plain);
    }

    #[test]
    fn only_what_is_written_in_whole_is_read() {
        for (text, read) in [
            ("", Some("")),
            ("a%20b%c3%A9", Some("a bé")),
            ("100%", None),
            ("%4", None),
            ("%+1", None),
            ("%zz", None),
            ("%ff", None),
        ] {
            assert_eq!(decode(text).as_deref(), read, "{text}");
        }
    }
}
