//! The schemas of the file: what marks it as ours, and the scripts that make each schema.

/// Marks the file as ours: "lsho".
pub(super) const APPLICATION_ID: i32 = 0x6c73_686f;
/// The schema that this code reads and writes.
pub(super) const SCHEMA_VERSION: i32 = 3;
/// The scripts that make each schema from the one before it, and the first from an empty file.
pub(super) const SCHEMAS: [&str; 3] = [
    include_str!("schema.sql"),
    include_str!("line.sql"),
    include_str!("mark.sql"),
];
