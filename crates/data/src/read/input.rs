//! The bytes of a file, decompressed if it is a gzip or Zstandard file.

use super::super::error::{Error, Result};
use super::meter::Meter;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// The first two bytes of a gzip file. No UTF-8 text starts with them, so they identify the format
/// instead of the file's name.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The first four bytes of a Zstandard file. No UTF-8 text starts with them either.
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Maximum decompression ratio. Text compresses to between a half and a hundredth of its size; data
/// that decompress to more than this multiple of the bytes read so far, plus [`SPARE`], are a
/// decompression bomb.
const MOST_TIMES: u64 = 200;

/// Decompressed bytes allowed for any file, so that a short file may be arbitrarily uniform.
const SPARE: u64 = 4 << 20;

/// A file that is read sequentially from start to end.
pub(super) struct Input {
    reader: Box<dyn BufRead + Send>,
    meter: Meter,
}

impl Input {
    pub fn open(path: &Path) -> Result<Input> {
        let opened = undertone_settings::open_regular(path).and_then(|file| {
            let size = file.metadata()?.len();
            let meter = Meter::new(size);
            let counted = Counted { file, meter: meter.clone() };
            let mut reader = BufReader::with_capacity(1 << 16, counted);
            let start = reader.fill_buf()?;
            let (is_gzip, is_zstandard) = (start.starts_with(&GZIP), start.starts_with(&ZSTANDARD));
            let decoder: Box<dyn Read + Send> = match (is_gzip, is_zstandard) {
                (true, _) => Box::new(MultiGzDecoder::new(reader)),
                (_, true) => Box::new(zstd::stream::read::Decoder::with_buffer(reader)?),
                _ => return Ok(Input { reader: Box::new(reader), meter }),
            };
            let inside = Bounded { decoder, decompressed: 0, compressed: meter.clone() };
            Ok(Input { reader: Box::new(BufReader::with_capacity(1 << 16, inside)), meter })
        });
        opened.map_err(|e| Error::io(path, &e))
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.reader.read(into)
    }
}

impl BufRead for Input {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
    }
}

/// Counts the bytes read from the file, compressed or not.
struct Counted {
    file: File,
    meter: Meter,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.meter.add(read as u64);
        Ok(read)
    }
}

/// Fails if compressed data are damaged or have decompressed to more than allowed. The bound grows
/// with the amount read, so a bomb is stopped long before the whole file is decompressed, whatever
/// follows.
struct Bounded {
    decoder: Box<dyn Read + Send>,
    decompressed: u64,
    compressed: Meter,
}

impl Read for Bounded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.decoder.read(into).map_err(|e| match e.kind() {
            // Its messages say little; a truncated file ends early.
            io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::UnexpectedEof
            | io::ErrorKind::Other => io::Error::new(
                io::ErrorKind::InvalidData,
                format!("its compressed data are damaged: {e}"),
            ),
            _ => e,
        })?;
        self.decompressed += read as u64;
        let most = self.compressed.done().saturating_mul(MOST_TIMES).saturating_add(SPARE);
        if self.decompressed > most {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("it decompresses to more than {MOST_TIMES} times its size"),
            ));
        }
        Ok(read)
    }
}
