//! Dates in UTC, without a library: the register needs only days and a readable time.

const DAY: u64 = 86_400;

/// The day of a time in seconds since 1970, such as 2026-11-19.
pub fn date(at: u64) -> String {
    let (year, month, day) = civil(at / DAY);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The day and time, such as 2026-11-19 08:30 UTC.
pub fn day_and_time(at: u64) -> String {
    format!("{} {:02}:{:02} UTC", date(at), at % DAY / 3600, at % 3600 / 60)
}

/// The last second of a day written as 2026-11-19; `None` if there is no such day.
pub fn end_of_day(text: &str) -> Option<u64> {
    let mut parts = text.split('-');
    let mut number = |digits: usize| -> Option<u64> {
        let part = parts.next().filter(|part| part.len() == digits)?;
        part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?
    };
    let (year, month, day) = (number(4)?, number(2)?, number(2)?);
    if parts.next().is_some() || year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let days = days_until(year, month, day);
    // April 31 would be May 1.
    (civil(days) == (year, month, day)).then_some(days * DAY + DAY - 1)
}

/// Days since 1970-01-01, with years that begin in March, so that a leap day is the last day of its
/// year.
fn days_until(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let since_march = (month + 9) % 12;
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * since_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let since_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * since_march + 2) / 5 + 1;
    let month = if since_march < 10 { since_march + 3 } else { since_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!((date(0).as_str(), date(951_782_400).as_str()), ("1970-01-01", "2000-02-29"));
        assert_eq!(day_and_time(1_795_077_000), "2026-11-19 08:30 UTC");
        for text in ["1970-01-01", "2000-02-29", "2024-12-31", "2026-11-19", "2100-03-01"] {
            let end = end_of_day(text).unwrap();
            assert_eq!((date(end), date(end + 1) != text), (text.to_owned(), true), "{text}");
        }
        for none in ["2023-02-29", "2100-02-29", "2026-04-31", "2026-13-01", "26-1-1", "soon", ""] {
            assert_eq!(end_of_day(none), None, "{none}");
        }
    }
}
