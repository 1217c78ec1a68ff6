//! Kinds of personal data.

use serde::{Deserialize, Serialize};

/// A kind of personal data, or a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Names of people
    Person,
    /// E-mail addresses
    Email,
    /// Phone numbers
    Phone,
    /// Postal addresses
    Address,
    /// Dates of birth
    BirthDate,
    /// Numbers of persons, taxpayers or patients that a state issues
    NationalId,
    /// International bank account numbers
    Iban,
    /// Payment card numbers
    Card,
    /// Web addresses
    Url,
    /// Passwords, keys and tokens
    Secret,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 10] = [
        Kind::Person,
        Kind::Email,
        Kind::Phone,
        Kind::Address,
        Kind::BirthDate,
        Kind::NationalId,
        Kind::Iban,
        Kind::Card,
        Kind::Url,
        Kind::Secret,
    ];

    /// The name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Person => "person",
            Kind::Email => "email",
            Kind::Phone => "phone",
            Kind::Address => "address",
            Kind::BirthDate => "birth-date",
            Kind::NationalId => "national-id",
            Kind::Iban => "iban",
            Kind::Card => "card",
            Kind::Url => "url",
            Kind::Secret => "secret",
        }
    }

    /// The plural, for tables.
    pub fn plural(self) -> &'static str {
        match self {
            Kind::Person => "names",
            Kind::Email => "e-mail addresses",
            Kind::Phone => "phone numbers",
            Kind::Address => "postal addresses",
            Kind::BirthDate => "dates of birth",
            Kind::NationalId => "national ids",
            Kind::Iban => "bank accounts (IBAN)",
            Kind::Card => "payment cards",
            Kind::Url => "web addresses",
            Kind::Secret => "secrets",
        }
    }

    /// The text that replaces it in a redacted copy. It needs no quotes or escapes in any format.
    pub fn placeholder(self) -> &'static str {
        match self {
            Kind::Person => "[PERSON]",
            Kind::Email => "[EMAIL]",
            Kind::Phone => "[PHONE]",
            Kind::Address => "[ADDRESS]",
            Kind::BirthDate => "[BIRTH_DATE]",
            Kind::NationalId => "[NATIONAL_ID]",
            Kind::Iban => "[IBAN]",
            Kind::Card => "[CARD]",
            Kind::Url => "[URL]",
            Kind::Secret => "[SECRET]",
        }
    }
}
