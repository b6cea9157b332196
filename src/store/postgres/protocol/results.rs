//! The result of a call: one value, or a record of the values of a function with several results.
//!
//! Each call is `SELECT f()`. With `SELECT * FROM f()` the server would give the results as columns, but it stores the
//! rows of such a function before it reads them, which costs it a seventh of its processor time for a claim and a
//! release.

use std::error::Error;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type, accepts};

use super::super::failure::Failure;

/// Returns the value that a function with one result returned.
pub(super) fn value<'a, T: FromSql<'a>>(row: &'a Row) -> Result<T, Failure> {
    row.try_get(0).map_err(|_| {
        let kinds = row.columns().iter().map(|column| column.type_().name());
        Failure::Odd(format!("types={}", kinds.collect::<Vec<_>>().join(",")))
    })
}

/// The results of a function, by their names.
pub(super) struct Results<'a> {
    names: &'static [&'static str],
    values: Vec<Typed<'a>>,
}

/// A value in its binary form, unless it is null.
type Typed<'a> = (Type, Option<&'a [u8]>);

impl<'a> Results<'a> {
    /// # Errors
    /// `Odd` for anything but a record of as many values.
    pub(super) fn new(row: &'a Row, names: &'static [&'static str]) -> Result<Self, Failure> {
        let Values(values) = value(row)?;
        let results = Self { names, values };
        if results.values.len() == names.len() {
            Ok(results)
        } else {
            Err(results.odd())
        }
    }

    /// # Errors
    /// `Odd` if the value has another type.
    pub(super) fn get<T: FromSql<'a>>(&self, name: &str) -> Result<T, Failure> {
        let mut values = self.names.iter().zip(&self.values);
        let value = values.find(|(known, _)| **known == name);
        let value = value.filter(|(_, (kind, _))| T::accepts(kind));
        let parsed = value.and_then(|(_, (kind, raw))| T::from_sql_nullable(kind, *raw).ok());
        parsed.ok_or_else(|| Failure::Odd(format!("column={name}")))
    }

    pub(super) fn odd(&self) -> Failure {
        Failure::Odd(format!("columns={}", self.values.len()))
    }
}

struct Values<'a>(Vec<Typed<'a>>);

impl<'a> FromSql<'a> for Values<'a> {
    accepts!(RECORD);

    /// Reads their number, then the type, the length and the bytes of each. The length of null is -1.
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let mut rest = raw;
        let count = int(&mut rest)?;
        let mut values = Vec::new();
        for _ in 0..count {
            let kind = Type::from_oid(int(&mut rest)?.cast_unsigned());
            let kind = kind.ok_or("a type of its own")?;
            let value = match usize::try_from(int(&mut rest)?) {
                Ok(length) => Some(rest.split_off(..length).ok_or("cut off")?),
                Err(_) => None,
            };
            values.push((kind, value));
        }
        Ok(Self(values))
    }
}

fn int(raw: &mut &[u8]) -> Result<i32, &'static str> {
    let (number, rest) = raw.split_first_chunk().ok_or("cut off")?;
    *raw = rest;
    Ok(i32::from_be_bytes(*number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_is_cut_off_is_refused() {
        // A number and a null.
        let raw: Vec<u8> = [2, 20, 8, 0, 7, 25, -1].map(i32::to_be_bytes).concat();
        let Values(values) = Values::from_sql(&Type::RECORD, &raw).expect("whole");
        let seven = 7_i64.to_be_bytes();
        assert_eq!(values, [(Type::INT8, Some(&seven[..])), (Type::TEXT, None)]);
        for length in 0..raw.len() {
            assert!(Values::from_sql(&Type::RECORD, &raw[..length]).is_err());
        }
        assert!(Values::accepts(&Type::RECORD) && !Values::accepts(&Type::TEXT));
    }
}
