//! Percent coding in URLs, headers and the names of nodes. Decoding is strict: what is not written as `%XX` is refused.

use percent_encoding::percent_decode_str;

/// Reads `%XX`. Returns `None` for a `%` without two hexadecimal digits, and for bytes that are not UTF-8.
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
