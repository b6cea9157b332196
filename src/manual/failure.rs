//! [`Lease::pass`]: crate::Lease::pass
//! [`run`]: crate::Client::run
//! [`Error::kind`]: crate::Error::kind
//! [`is_transient`]: crate::Error::is_transient
//! [`Client::shutdown`]: crate::Client::shutdown
#![doc = include_str!("failure.md")]
