//! Check digits of account, card and national numbers.
//!
//! Every function takes a number without separators, in capitals, and is false for any text of
//! another length or with other characters.

/// The digits of a text of exactly this length; `None` if there is anything else.
fn digits<const N: usize>(text: &str) -> Option<[u32; N]> {
    let mut digits = [0; N];
    let bytes = text.as_bytes();
    if bytes.len() != N || !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    for (digit, byte) in digits.iter_mut().zip(bytes) {
        *digit = u32::from(byte - b'0');
    }
    Some(digits)
}

fn weighted(digits: &[u32], weights: &[u32]) -> u32 {
    digits.iter().zip(weights).map(|(digit, weight)| digit * weight).sum()
}

/// Whether the weighted sum of exactly these digits is a multiple of `modulus`.
fn is_multiple<const N: usize>(text: &str, weights: [u32; N], modulus: u32) -> bool {
    digits::<N>(text).is_some_and(|digits| weighted(&digits, &weights).is_multiple_of(modulus))
}

/// Luhn's check (ISO/IEC 7812) of at least two digits: payment cards, Swedish and Canadian numbers.
pub fn luhn(text: &str) -> bool {
    let doubled = |digit: u32| if digit > 4 { 2 * digit - 9 } else { 2 * digit };
    let sum: u32 = text
        .bytes()
        .rev()
        .enumerate()
        .map(|(i, byte)| (i, u32::from(byte.wrapping_sub(b'0'))))
        .map(|(i, digit)| if i % 2 == 1 { doubled(digit) } else { digit })
        .sum();
    text.len() >= 2 && text.bytes().all(|byte| byte.is_ascii_digit()) && sum.is_multiple_of(10)
}

/// A payment card: 13 to 19 digits with the prefix of a card issuer (2221 to 2720, or 3 to 6).
pub fn card(text: &str) -> bool {
    let first = text.get(..4).and_then(|first| first.parse::<u32>().ok()).unwrap_or(0);
    let is_issued = (2221..=2720).contains(&first) || (3000..=6999).contains(&first);
    (13..=19).contains(&text.len()) && is_issued && luhn(text)
}

/// Length of an IBAN by its country; countries that are not listed are not recognized.
const IBAN_LENGTHS: &str = "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BR29 BY28 CH21 CR22 CY28 \
     CZ24 DE22 DK18 DO28 EE20 EG29 ES24 FI18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HR21 HU28 \
     IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 \
     MK19 MR27 MT31 MU30 NL18 NO15 PK24 PL28 PS29 PT25 QA29 RO24 RS22 SA24 SC31 SE24 SI19 SK24 \
     SM27 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20";

/// An IBAN (ISO 13616): the length of its country, and 1 modulo 97 (ISO/IEC 7064).
pub fn iban(text: &str) -> bool {
    let Some(country) = text.get(..2) else { return false };
    let length = IBAN_LENGTHS.split(' ').find_map(|entry| entry.strip_prefix(country));
    if length.and_then(|length| length.parse().ok()) != Some(text.len()) {
        return false;
    }
    let mut rearranged = text.bytes().skip(4).chain(text.bytes().take(4));
    let remainder = rearranged.try_fold(0_u32, |rest, byte| match byte {
        b'0'..=b'9' => Some((rest * 10 + u32::from(byte - b'0')) % 97),
        b'A'..=b'Z' => Some((rest * 100 + u32::from(byte - b'A') + 10) % 97),
        _ => None,
    });
    remainder == Some(1)
}

/// United States, SSN: no check digit, only areas, groups and serials that are never issued.
pub fn us_ssn(text: &str) -> bool {
    digits::<9>(text).is_some_and(|_| {
        let (area, group, serial) = (&text[..3], &text[3..5], &text[5..]);
        area != "000" && area != "666" && area < "900" && group != "00" && serial != "0000"
    })
}

/// United Kingdom, NHS number: weights 10 to 2 modulo 11.
pub fn uk_nhs(text: &str) -> bool {
    is_multiple(text, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1], 11)
}

/// United Kingdom, national insurance number: no check digit, only prefixes that are never issued.
pub fn uk_nino(text: &str) -> bool {
    let (Some(prefix), Some(number), Some(suffix)) = (text.get(..2), text.get(2..8), text.get(8..))
    else {
        return false;
    };
    let may = |c: char, none: &str| c.is_ascii_uppercase() && !none.contains(c);
    let mut letters = prefix.chars();
    letters.next().is_some_and(|c| may(c, "DFIQUV"))
        && letters.next().is_some_and(|c| may(c, "DFIOQUV"))
        && !["BG", "GB", "NK", "KN", "TN", "NT", "ZZ"].contains(&prefix)
        && number.bytes().all(|byte| byte.is_ascii_digit())
        && matches!(suffix, "A" | "B" | "C" | "D")
}

/// Germany, tax id: ISO/IEC 7064 MOD 11,10, and one digit that occurs twice or three times.
pub fn german_tax_id(text: &str) -> bool {
    let Some(digits) = digits::<11>(text) else { return false };
    let mut product = 10;
    for digit in &digits[..10] {
        let sum = (digit + product) % 10;
        product = (if sum == 0 { 10 } else { sum }) * 2 % 11;
    }
    let count = |digit: u32| digits[..10].iter().filter(|other| **other == digit).count();
    let repeated: Vec<usize> = (0..10).map(count).filter(|count| *count > 1).collect();
    digits[0] != 0 && (11 - product) % 10 == digits[10] && matches!(repeated[..], [2 | 3])
}

/// France, NIR: 13 digits (2A and 2B for Corsica) and 97 minus them modulo 97.
pub fn french_nir(text: &str) -> bool {
    let (Some(number), Some(key)) = (text.get(..13), text.get(13..)) else { return false };
    let (number, less) = match number.get(5..7) {
        Some("2A") => (number.replacen("2A", "19", 1), 0),
        Some("2B") => (number.replacen("2B", "18", 1), 0),
        _ => (number.to_owned(), 0),
    };
    let key = digits::<2>(key).map(|key| u64::from(10 * key[0] + key[1]));
    let number = digits::<13>(&number).and_then(|_| number.parse::<u64>().ok());
    match (number, key) {
        (Some(number), Some(key)) => {
            text.starts_with(['1', '2', '3', '4', '7', '8']) && 97 - (number - less) % 97 == key
        }
        _ => false,
    }
}

/// Spain, DNI and NIE: a letter by the number modulo 23.
pub fn spanish_id(text: &str) -> bool {
    let Some(number) = text.get(..8) else { return false };
    let number = match number.chars().next() {
        Some('X') => number.replacen('X', "0", 1),
        Some('Y') => number.replacen('Y', "1", 1),
        Some('Z') => number.replacen('Z', "2", 1),
        _ => number.to_owned(),
    };
    let letter = digits::<8>(&number)
        .and_then(|_| number.parse::<usize>().ok())
        .map(|number| b"TRWAGMYFPDXBNJZSQVHLCKE"[number % 23]);
    letter.is_some_and(|letter| text.as_bytes()[8..] == [letter])
}

/// Italy, codice fiscale: a letter by weights of the odd and even characters modulo 26.
pub fn italian_code(text: &str) -> bool {
    const ODD: [u32; 26] = [
        1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24,
        23,
    ];
    let bytes = text.as_bytes();
    if bytes.len() != 16 || !bytes.iter().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase()) {
        return false;
    }
    let value = |byte: u8| u32::from(byte - if byte.is_ascii_digit() { b'0' } else { b'A' });
    let of = |(i, byte): (usize, &u8)| match i % 2 {
        0 => ODD[value(*byte) as usize],
        _ => value(*byte),
    };
    let sum: u32 = bytes[..15].iter().enumerate().map(of).sum();
    bytes[15] == b'A' + (sum % 26) as u8
}

/// Netherlands, BSN: weights 9 to 2 and −1 modulo 11.
pub fn dutch_bsn(text: &str) -> bool {
    text != "000000000" && is_multiple(text, [9, 8, 7, 6, 5, 4, 3, 2, 10], 11)
}

/// Belgium, national number: 97 minus the first nine digits modulo 97; with a 2 before them for
/// people born since 2000.
pub fn belgian_number(text: &str) -> bool {
    if digits::<11>(text).is_none() {
        return false;
    }
    let (number, check) = (text[..9].parse::<u64>(), text[9..].parse::<u64>());
    let (Ok(number), Ok(check)) = (number, check) else { return false };
    let fits = |number: u64| 97 - number % 97 == check;
    is_month_and_day(&text[2..6]) && (fits(number) || fits(2_000_000_000 + number))
}

/// Poland, PESEL: weights 1, 3, 7, 9 modulo 10; centuries are added to the month.
pub fn polish_pesel(text: &str) -> bool {
    digits::<11>(text).is_some_and(|digits| {
        let month = (10 * digits[2] + digits[3]) % 20;
        let day = 10 * digits[4] + digits[5];
        (1..=12).contains(&month) && (1..=31).contains(&day)
    }) && is_multiple(text, [1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1], 10)
}

/// Sweden, personnummer: ten digits that begin with a date and pass Luhn's check.
pub fn swedish_number(text: &str) -> bool {
    let text = if text.len() == 12 { &text[2..] } else { text };
    text.len() == 10 && luhn(text) && is_month_and_day(&text[2..6])
}

/// Finland, HETU: a character by the nine digits modulo 31.
pub fn finnish_hetu(text: &str) -> bool {
    let (Some(date), Some(serial), Some(check)) = (text.get(..6), text.get(7..10), text.get(10..))
    else {
        return false;
    };
    let number = format!("{date}{serial}");
    let (day, month) = (&date[..2], &date[2..4]);
    let Some(number) = digits::<9>(&number).and_then(|_| number.parse::<usize>().ok()) else {
        return false;
    };
    is_month_and_day(&format!("{month}{day}"))
        && check.as_bytes() == [b"0123456789ABCDEFHJKLMNPRSTUVWXY"[number % 31]]
}

/// Switzerland, AHV number: 756 and the check digit of an EAN-13.
pub fn swiss_ahv(text: &str) -> bool {
    text.starts_with("756") && is_multiple(text, [1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1, 3, 1], 10)
}

/// Brazil, CPF: two check digits modulo 11.
pub fn brazilian_cpf(text: &str) -> bool {
    let Some(digits) = digits::<11>(text) else { return false };
    let check = |weights: &[u32]| (weighted(&digits, weights) * 10 % 11) % 10;
    digits.iter().any(|digit| *digit != digits[0])
        && check(&[10, 9, 8, 7, 6, 5, 4, 3, 2]) == digits[9]
        && check(&[11, 10, 9, 8, 7, 6, 5, 4, 3, 2]) == digits[10]
}

/// China, resident identity number: ISO/IEC 7064 MOD 11-2.
pub fn chinese_id(text: &str) -> bool {
    const WEIGHTS: [u32; 17] = [7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2];
    let (Some(number), Some(check)) = (text.get(..17), text.get(17..)) else { return false };
    digits::<17>(number).is_some_and(|digits| {
        let expected = b"10X98765432"[(weighted(&digits, &WEIGHTS) % 11) as usize];
        check.as_bytes() == [expected] && is_month_and_day(&text[10..14])
    })
}

/// India, Aadhaar: twelve digits with Verhoeff's check digit, by the dihedral group of order 10.
pub fn indian_aadhaar(text: &str) -> bool {
    // The product in the group: below 5 rotations, the others reflections.
    let product = |a: u32, b: u32| match (a < 5, b < 5) {
        (true, true) => (a + b) % 5,
        (true, false) => 5 + (a + b - 5) % 5,
        (false, true) => 5 + (a - 5 + 5 - b) % 5,
        (false, false) => (a + 5 - b) % 5,
    };
    const PERMUTATION: [u32; 10] = [1, 5, 7, 6, 2, 8, 3, 0, 9, 4];
    let Some(digits) = digits::<12>(text) else { return false };
    let permuted =
        |(i, digit): (usize, &u32)| (0..i % 8).fold(*digit, |digit, _| PERMUTATION[digit as usize]);
    let check = digits.iter().rev().enumerate().map(permuted).fold(0, product);
    digits[0] > 1 && check == 0
}

/// Canada, SIN: Luhn's check of nine digits.
pub fn canadian_sin(text: &str) -> bool {
    text.len() == 9 && !text.starts_with(['0', '8']) && luhn(text)
}

/// Whether four digits are a month and a day.
fn is_month_and_day(text: &str) -> bool {
    text.get(..4).is_some_and(|text| {
        ("01"..="12").contains(&&text[..2]) && ("01"..="31").contains(&&text[2..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published examples, and numbers that their issuers use in documentation.
    type Check = fn(&str) -> bool;
    const GOOD: [(Check, &[&str]); 19] = [
        (card, &["4111111111111111", "5555555555554444", "378282246310005", "6011111111111117"]),
        (
            iban,
            &["DE89370400440532013000", "GB82WEST12345698765432", "FR1420041010050500013M02606"],
        ),
        (us_ssn, &["078051120", "123456789"]),
        (uk_nhs, &["9434765919", "4010232137"]),
        (uk_nino, &["AB123456C"]),
        (german_tax_id, &["86095742719", "65929970489"]),
        (french_nir, &["255081416802538", "180122A00100242"]),
        (spanish_id, &["12345678Z", "X1234567L"]),
        (italian_code, &["RSSMRA85T10A562S"]),
        (dutch_bsn, &["111222333", "123456782"]),
        (belgian_number, &["85073003328", "17073003384"]),
        (polish_pesel, &["44051401359"]),
        (swedish_number, &["8112189876", "198112189876"]),
        (finnish_hetu, &["131052-308T"]),
        (swiss_ahv, &["7569217076985"]),
        (brazilian_cpf, &["11144477735", "52998224725"]),
        (chinese_id, &["11010519491231002X"]),
        (indian_aadhaar, &["234123412346"]),
        (canadian_sin, &["193456787"]),
    ];

    #[test]
    fn numbers_of_documentation_pass_their_checks() {
        for (i, (check, numbers)) in GOOD.iter().enumerate() {
            numbers.iter().for_each(|number| assert!(check(number), "{i}: {number}"));
        }
    }

    #[test]
    fn a_changed_digit_fails_every_check_that_has_one() {
        // Numbers without check digits are distinguished from other numbers only by their form.
        let checked = GOOD.iter().enumerate().filter(|(i, _)| *i != 2 && *i != 4);
        for (i, (check, numbers)) in checked {
            for number in numbers.iter() {
                let digits = number.bytes().enumerate().filter(|(_, b)| b.is_ascii_digit());
                for (at, digit) in digits {
                    let mut changed = number.as_bytes().to_vec();
                    changed[at] = b'0' + (digit - b'0' + 1) % 10;
                    let changed = String::from_utf8(changed).unwrap();
                    // The check of a Swedish number does not cover the century, and modulo 97 does
                    // not distinguish 0 from 97.
                    let is_century = changed.len() == 12 && at < 2 && i == 12;
                    assert!(is_century || !check(&changed), "{i}: {number} and {changed}");
                }
            }
        }
    }

    #[test]
    fn other_texts_fail_without_panicking() {
        let texts =
            ["", "1", "x", "é", "12345678é", "éééééééé", "0000000000000", "1234567890123456"];
        for (check, _) in GOOD {
            let passing: Vec<&&str> = texts.iter().filter(|text| check(text)).collect();
            assert!(passing.is_empty(), "{passing:?}");
        }
        assert!(!iban("DE8937040044053201300") && !iban("XX89370400440532013000") && !luhn("0"));
        assert!(!uk_nino("GB123456A") && !us_ssn("666123456") && !us_ssn("900123456"));
        assert!(!brazilian_cpf("11111111111") && !card("79927398713"));
    }
}
