//! National ids of sixteen countries, by form, check digits and, where both are weak, context.

use super::{Finding, Kind, Text, checksums, forms::bare, stands_alone};
use regex::Regex;

/// A kind of national id.
struct Id {
    detail: &'static str,
    /// The written form, with the usual separators.
    form: &'static str,
    check: fn(&str) -> bool,
    /// Words (in lowercase), one of which must be nearby, because at least one percent of other
    /// numbers pass the check. Empty if form and check suffice.
    context: &'static [&'static str],
}

const IDS: [Id; 20] = [
    Id {
        detail: "Italy, codice fiscale",
        form: r"(?i)[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]",
        check: checksums::italian_code,
        context: &[],
    },
    Id {
        detail: "China, resident identity number",
        form: r"[1-9]\d{5}(?:18|19|20)\d{9}[\dXx]",
        check: checksums::chinese_id,
        context: &[],
    },
    Id {
        detail: "France, NIR",
        form: r"[1-478] ?\d{2} ?[01]\d ?(?:\d{2}|2[ABab]) ?\d{3} ?\d{3} ?\d{2}",
        check: checksums::french_nir,
        context: &[],
    },
    Id {
        detail: "Switzerland, AHV number",
        form: r"756[. ]?\d{4}[. ]?\d{4}[. ]?\d{2}",
        check: checksums::swiss_ahv,
        context: &[],
    },
    Id {
        detail: "Brazil, CPF",
        form: r"\d{3}\.\d{3}\.\d{3}-\d{2}",
        check: checksums::brazilian_cpf,
        context: &[],
    },
    Id {
        detail: "Brazil, CPF",
        form: r"\d{11}",
        check: checksums::brazilian_cpf,
        context: &["cpf"],
    },
    Id {
        detail: "Belgium, national number",
        form: r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}",
        check: checksums::belgian_number,
        context: &[],
    },
    Id {
        detail: "Finland, HETU",
        form: r"[0-3]\d[01]\d{3}[-+A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]",
        check: checksums::finnish_hetu,
        context: &[],
    },
    Id {
        detail: "Spain, DNI or NIE",
        form: r"(?:\d{8}|[XYZ]-?\d{7})-?[A-HJ-NP-TV-Z]",
        check: checksums::spanish_id,
        context: &[],
    },
    Id {
        detail: "Sweden, personnummer",
        form: r"(?:19|20)?\d{6}[-+]\d{4}",
        check: checksums::swedish_number,
        context: &[],
    },
    Id {
        detail: "Germany, tax id",
        form: r"\d{2} ?\d{3} ?\d{3} ?\d{3}",
        check: checksums::german_tax_id,
        context: &["steuer", "steuer-id", "steuerid", "idnr", "identifikationsnummer", "tin"],
    },
    Id {
        detail: "Poland, PESEL",
        form: r"\d{11}",
        check: checksums::polish_pesel,
        context: &["pesel"],
    },
    Id {
        detail: "Belgium, national number",
        form: r"\d{11}",
        check: checksums::belgian_number,
        context: &["rijksregisternummer", "numéro national", "registre national", "niss", "insz"],
    },
    Id {
        detail: "United States, SSN",
        form: r"\d{3}-\d{2}-\d{4}",
        check: checksums::us_ssn,
        context: &[],
    },
    Id {
        detail: "United States, SSN",
        form: r"\d{3} ?\d{2} ?\d{4}",
        check: checksums::us_ssn,
        context: &["ssn", "social security", "social sec"],
    },
    Id {
        detail: "United Kingdom, national insurance number",
        form: r"[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]",
        check: checksums::uk_nino,
        context: &[],
    },
    Id {
        detail: "United Kingdom, NHS number",
        form: r"\d{3}[ -]?\d{3}[ -]?\d{4}",
        check: checksums::uk_nhs,
        context: &["nhs"],
    },
    Id {
        detail: "Netherlands, BSN",
        form: r"\d{4}[. ]?\d{2}[. ]?\d{3}|\d{3}[. ]?\d{3}[. ]?\d{3}",
        check: checksums::dutch_bsn,
        context: &["bsn", "burgerservicenummer", "sofinummer"],
    },
    Id {
        detail: "India, Aadhaar",
        form: r"[2-9]\d{3}[ -]?\d{4}[ -]?\d{4}",
        check: checksums::indian_aadhaar,
        context: &["aadhaar", "aadhar", "uidai", "uid"],
    },
    Id {
        detail: "Canada, SIN",
        form: r"\d{3}[ -]?\d{3}[ -]?\d{3}",
        check: checksums::canadian_sin,
        context: &["sin", "social insurance", "nas"],
    },
];

pub(super) struct National(Vec<(Id, Regex)>);

impl Default for National {
    fn default() -> Self {
        // The patterns are constants, and a test checks that they compile.
        let compiled = IDS.into_iter().filter_map(|id| Regex::new(id.form).ok().map(|f| (id, f)));
        Self(compiled.collect())
    }
}

impl National {
    pub fn find(&self, text: &Text) -> Vec<Finding> {
        let mut findings = Vec::new();
        // Most texts have no digits, and every id has.
        if !text.text.bytes().any(|byte| byte.is_ascii_digit()) {
            return findings;
        }
        for (id, form) in &self.0 {
            for matched in form.find_iter(text.text) {
                let is_id = stands_alone(text.text, &matched.range())
                    && (id.check)(&id.characters(matched.as_str()))
                    && (id.context.is_empty() || text.has_context(id.context, matched.start()));
                if is_id {
                    let (kind, detail) = (Kind::NationalId, id.detail);
                    findings.push(Finding { range: matched.range(), kind, detail });
                }
            }
        }
        findings
    }
}

impl Id {
    /// The characters that the check covers, which include the separator for Finland.
    fn characters(&self, text: &str) -> String {
        if self.detail.starts_with("Finland") { text.to_owned() } else { bare(text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_compile() {
        assert_eq!(National::default().0.len(), IDS.len());
    }
}
