//! Where metrics are served: this machine only, unless another address is written out.

use std::net::{Ipv4Addr, SocketAddr};

/// Reads `9464`, `:9464`, `localhost:9464`, `0.0.0.0:9464` or `[::]:9464`. A port alone is one of this machine.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix("localhost:").unwrap_or(text);
    let port = port.strip_prefix(':').unwrap_or(port);
    if let Ok(port) = port.parse() {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    text.parse().map_err(|_| {
        "expected a port of this machine such as 9464, or an address and a port such as 0.0.0.0:9464"
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_is_written_out_leads_outside() {
        for (text, expected) in [
            ("9464", "127.0.0.1:9464"),
            (":9464", "127.0.0.1:9464"),
            ("localhost:0", "127.0.0.1:0"),
            ("0.0.0.0:9464", "0.0.0.0:9464"),
            ("[::]:1", "[::]:1"),
        ] {
            assert_eq!(parse(text).map(|it| it.to_string()), Ok(expected.into()));
        }
        for text in ["", ":", "*:9464", "db:9464", "0.0.0.0", "99999"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
