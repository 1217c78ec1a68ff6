//! Our CSV reader compared with the `csv` crate, on well-formed files.

use proptest::prelude::*;
use undertone_data::{Format, read};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_reads_what_the_csv_crate_writes_and_reads(
        records in prop::collection::vec(
            prop::collection::vec("([a-zé\",\n ]|\r\n){0,12}", 3), 1..12
        ),
        windows in any::<bool>(),
        always in any::<bool>(),
    ) {
        let mut writer = csv::WriterBuilder::new()
            .terminator(if windows { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') })
            .quote_style(if always { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary })
            .from_writer(Vec::new());
        writer.write_record(["a", "b", "c"]).unwrap();
        records.iter().for_each(|record| writer.write_record(record).unwrap());
        let bytes = writer.into_inner().unwrap();

        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        std::fs::write(&file, &bytes).unwrap();
        let ours = read::rows(&file, Format::Csv, &["a", "b", "c"]).unwrap();
        let ours: Vec<_> = ours.map(|row| row.unwrap()).collect();

        let mut theirs = csv::Reader::from_reader(bytes.as_slice());
        let values = |record: csv::StringRecord| record.iter().map(str::to_owned).collect();
        let theirs: Vec<Vec<String>> =
            theirs.records().map(|record| values(record.unwrap())).collect();
        let values: Vec<Vec<String>> = ours.iter().map(|row| row.values.clone()).collect();
        prop_assert_eq!(&values, &theirs);
        prop_assert_eq!(&values, &records);

        // A record begins after the line breaks of everything before it.
        let mut line = 2;
        for row in &ours {
            prop_assert_eq!(row.line, line);
            line += 1 + row.values.concat().matches('\n').count() as u64;
        }
    }
}
