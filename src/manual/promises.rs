//! [fencing]: super::fencing
//! [`Token`]: crate::Token
//! [`Lease::check`]: crate::Lease::check
//! [cancellation token]: crate::Lease::cancellation_token
//! [`fence`]: crate::fence
//! [`Lease`]: crate::Lease
#![doc = include_str!("promises.md")]
