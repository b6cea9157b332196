//! A parser for as much of the servers' protocol as shows where a request or a reply ends.

/// Returns the length of the first whole value, or `None` while a part of it is missing.
pub fn whole(bytes: &[u8]) -> Option<usize> {
    let (head, start) = line(bytes)?;
    match head.first()? {
        b'$' | b'=' | b'!' => length_in(head).map_or(Some(start), |length| {
            let end = start + length + 2;
            (bytes.len() >= end).then_some(end)
        }),
        b'*' | b'~' | b'>' => values(bytes, start, length_in(head).unwrap_or(0)),
        b'%' => values(bytes, start, 2 * length_in(head).unwrap_or(0)),
        _ => Some(start),
    }
}

/// Returns the words of a whole request: the command and its arguments.
pub fn words(request: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    let Some((_, mut at)) = line(request) else {
        return words;
    };
    while let Some((head, start)) = line(&request[at..]) {
        let length = length_in(head).expect("requests are arrays of strings");
        let word = &request[at + start..at + start + length];
        words.push(String::from_utf8_lossy(word).into_owned());
        at += start + length + 2;
    }
    words
}

/// Returns whether the server sends this on its own, and not as a reply.
pub fn is_pushed(reply: &[u8]) -> bool {
    reply.starts_with(b">")
        || [
            &b"*3\r\n$7\r\nmessage"[..],
            b"*3\r\n$8\r\nsmessage",
            b"*4\r\n$8\r\npmessage",
        ]
        .iter()
        .any(|head| reply.starts_with(head))
}

fn values(bytes: &[u8], start: usize, count: usize) -> Option<usize> {
    (0..count).try_fold(start, |at, _| Some(at + whole(&bytes[at..])?))
}

fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

/// Parses the number after the type's sign; `None` for the -1 of an absent value.
fn length_in(head: &[u8]) -> Option<usize> {
    std::str::from_utf8(&head[1..]).ok()?.parse().ok()
}

#[test]
fn a_value_ends_where_its_last_part_ends() {
    for value in [
        "+OK\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "$3\r\na\r\n\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:7\r\n",
        "%1\r\n+a\r\n_\r\n",
    ] {
        let bytes = [value, "+next\r\n"].concat().into_bytes();
        assert_eq!(whole(&bytes), Some(value.len()), "{value:?}");
        assert_eq!(whole(&bytes[..value.len() - 1]), None, "{value:?}");
    }
    assert_eq!(words(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"), ["GET", "k"]);
}
