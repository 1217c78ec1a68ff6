use super::*;
use crate::audit::spans::Together;
use crate::audit::spans::names::Names;
use crate::audit::spans::patterns::Patterns;
use crate::data::Format;
use crate::data::read::{RawRecord, raw_records};

fn scanner() -> Scanner {
    let people: Vec<Box<dyn Finder>> =
        vec![Box::new(Patterns::default()), Box::new(Names::default())];
    Scanner::new(Box::new(Together(people)))
}

fn found_in(column: &str, text: &str) -> Vec<(String, Kind, &'static str)> {
    let findings = scanner().scan(&[Text { column, text }]).unwrap().remove(0);
    let of =
        |finding: &Finding| (text[finding.range.clone()].to_owned(), finding.kind, finding.detail);
    findings.iter().map(of).collect()
}

#[test]
fn every_kind_is_found_in_a_sentence() {
    let text = "Louise Kitchen, born 12 March 1980, mara@example.org, +44 20 7783 0000, 1 Smith \
                Street, IBAN DE89 3704 0044 0532 0130 00 and card 4111 1111 1111 1111, SSN \
                078-05-1120, see https://example.org/a?b=1. Password: hunter22.";
    let kinds: Vec<Kind> = found_in("text", text).into_iter().map(|(_, kind, _)| kind).collect();
    use Kind::*;
    let expected = [Person, BirthDate, Email, Phone, Address, Iban, Card, NationalId, Url, Secret];
    assert_eq!(kinds, expected, "{:?}", found_in("text", text));
}

#[test]
fn wrong_check_digits_and_missing_context_are_not_found() {
    for text in [
        "DE88 3704 0044 0532 0130 00",
        "4111 1111 1111 1112",
        "on 12 March 1980 we met",
        "order 123456782 of today",
        "86095742719",
        "RSSMRA85T10A562T",
    ] {
        assert_eq!(found_in("text", text), [], "{text}");
    }
}

#[test]
fn context_may_be_words_before_or_the_column() {
    let bsn = ("123456782".to_owned(), Kind::NationalId, "Netherlands, BSN");
    assert_eq!(found_in("text", "Mijn BSN is 123456782."), std::slice::from_ref(&bsn));
    assert_eq!(found_in("bsn", "123456782"), [bsn]);
    assert_eq!(found_in("business", "123456782"), []);
    assert_eq!(found_in("date_of_birth", "1980-03-12")[0].1, Kind::BirthDate);
    assert_eq!(found_in("steuer_id", "86 095 742 719")[0].2, "Germany, tax id");
    let ids = [
        ("codice fiscale RSSMRA85T10A562S", "Italy, codice fiscale"),
        ("n° 2 55 08 14 168 025 38 (NIR)", "France, NIR"),
        ("DNI 12345678Z", "Spain, DNI or NIE"),
        ("hetu 131052-308T.", "Finland, HETU"),
        ("CPF 529.982.247-25", "Brazil, CPF"),
        ("AHV 756.9217.0769.85", "Switzerland, AHV number"),
        ("NHS number: 943 476 5919", "United Kingdom, NHS number"),
        ("NINO AB 12 34 56 C", "United Kingdom, national insurance number"),
        ("PESEL 44051401359", "Poland, PESEL"),
        ("pnr 811218-9876", "Sweden, personnummer"),
        ("nr 85.07.30-033.28", "Belgium, national number"),
        ("id 11010519491231002X", "China, resident identity number"),
        ("Aadhaar 2341 2341 2346", "India, Aadhaar"),
        ("his SIN: 193 456 787", "Canada, SIN"),
    ];
    for (text, detail) in ids {
        let findings = found_in("text", text);
        assert!(findings.iter().any(|(_, _, of)| *of == detail), "{text}: {findings:?}");
    }
}

#[test]
fn secrets_are_found_by_their_prefixes() {
    // Assembled here, so that nobody mistakes them for real ones.
    let long = "a1B2".repeat(10);
    for (text, secret, detail) in [
        (format!("key AKIA{} here", "ABCD1234".repeat(2)), "AKIA", "AWS access key"),
        (format!("ghp_{long}"), "ghp_", "GitHub token"),
        (format!("token sk_live_{long}"), "sk_live_", "Stripe key"),
        (format!("hf_{}", "aB".repeat(17)), "hf_", "Hugging Face token"),
        (format!("-----BEGIN RSA PRIVATE KEY-----\n{long}\n"), "-----B", "private key"),
        ("my password is hunter22, do".to_owned(), "hunter22", "password or key"),
        ("\"api_key\": \"abcdef99\"".to_owned(), "abcdef99", "password or key"),
    ] {
        let findings = found_in("text", &text);
        assert_eq!(findings.len(), 1, "{text}: {findings:?}");
        assert!(
            findings[0].0.starts_with(secret) && findings[0].2 == detail,
            "{text}: {findings:?}"
        );
    }
    assert_eq!(found_in("text", "the password was changed"), []);
}

#[test]
fn overlapping_findings_are_replaced_as_a_whole() {
    let of = |range: Range<usize>, kind| Finding { range, kind, detail: "" };
    let all = vec![of(0..10, Kind::Url), of(8..12, Kind::Email), of(12..13, Kind::Phone)];
    let whole = [of(0..12, Kind::Url), of(12..13, Kind::Phone)];
    assert_eq!(without_overlap(all), whole);
    let nested = vec![of(5..9, Kind::Email), of(0..20, Kind::Url), of(15..22, Kind::Person)];
    assert_eq!(without_overlap(nested), [of(0..22, Kind::Url)]);
}

/// The redacted file.
fn redaction(name: &str, bytes: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    let format = Format::from_extension(&file).unwrap();
    let scanner = scanner();
    let redact = |record: RawRecord| {
        let texts: Vec<Text> = record
            .values
            .iter()
            .map(|value| Text { column: &value.column, text: &value.value })
            .collect();
        redacted(&record, &scanner.scan(&texts).unwrap())
    };
    raw_records(&file, format).unwrap().map(|record| redact(record.unwrap())).collect()
}

#[test]
fn redaction_keeps_every_other_byte() {
    let csv = "\u{feff}id;note\r\n7;\"say \"\"hi\"\" to\r\nLouise Kitchen; now\"\r\n\r\n8;m@example.org\n";
    let after = "\u{feff}id;note\r\n7;\"say \"\"hi\"\" to\r\n[PERSON]; now\"\r\n\r\n8;[EMAIL]\n";
    assert_eq!(redaction("a.csv", csv), after);
    let tsv = "a\tb\nx \tm@example.org\n\t\"y\n";
    assert_eq!(redaction("a.tsv", tsv), "a\tb\nx \t[EMAIL]\n\t\"y\n");
    let json = "{ \"a\" :\"\\u00e9 m@example.org\\n\", \"card\":4111111111111111,\"n\":1.50 }\r\n";
    let after = "{ \"a\" :\"\\u00e9 [EMAIL]\\n\", \"card\":\"[CARD]\",\"n\":1.50 }\r\n";
    assert_eq!(redaction("a.jsonl", json), after);
    let array = "[ {\"a\":[\"x\",\n\"m@example.org\"]},\n{} ]";
    assert_eq!(redaction("a.json", array), "[ {\"a\":[\"x\",\n\"[EMAIL]\"]},\n{} ]");
    for nothing in ["a,b\n\"1\",\" 2\"\n", "a\n"] {
        assert_eq!(redaction("a.csv", nothing), nothing);
    }
}
