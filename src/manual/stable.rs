//! [`metrics`]: crate::metrics
//! [`Store`]: crate::store::Store
//! [`spi`]: crate::store::spi
#![doc = include_str!("stable.md")]
