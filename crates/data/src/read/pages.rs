//! Sizes of Parquet pages, read from their headers before anything is decompressed.
//!
//! A page header states the size of the page after decompression, and the library reserves that
//! much memory, so a file of a few kilobytes could demand gigabytes. The header is a struct in
//! Thrift's compact protocol; its first fields are the kind (1), the size after decompression (2)
//! and the compressed size (3), each an i32.

/// The sizes stated in a page header, and the length of the header itself.
#[derive(Debug, PartialEq)]
pub(super) struct PageHeader {
    /// Size after decompression, in bytes.
    pub uncompressed: u64,
    /// Size in the file after the header, in bytes.
    pub compressed: u64,
    /// Length of the header itself, in bytes.
    pub length: usize,
}

/// Maximum nesting depth of structs and lists in a header.
const DEEPEST: u32 = 8;

/// Parses the header at the start of `bytes`; `None` if it is malformed or truncated.
pub(super) fn page_header(bytes: &[u8]) -> Option<PageHeader> {
    let mut reader = Reader { bytes, at: 0 };
    let (mut sizes, mut field) = ([None, None], 0_i16);
    while let Some((id, kind)) = reader.field(field)? {
        field = id;
        match (id, kind) {
            (2 | 3, I32) => sizes[id as usize - 2] = Some(reader.zigzag()?),
            _ => reader.skip(kind, 0)?,
        }
    }
    let [uncompressed, compressed] = sizes.map(|size| u64::try_from(size?).ok());
    Some(PageHeader { uncompressed: uncompressed?, compressed: compressed?, length: reader.at })
}

const I32: u8 = 5;

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.at = self.at.checked_add(usize::try_from(count).ok()?)?;
        (self.at <= self.bytes.len()).then_some(())
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn zigzag(&mut self) -> Option<i64> {
        let number = self.varint()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    /// Id and kind of the next field; `Some(None)` at the end of the struct.
    fn field(&mut self, before: i16) -> Option<Option<(i16, u8)>> {
        let head = self.byte()?;
        if head == 0 {
            return Some(None);
        }
        let id = match head >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            step => before.checked_add(i16::from(step))?,
        };
        Some(Some((id, head & 0x0f)))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        if depth > DEEPEST {
            return None;
        }
        match kind {
            // Booleans in structs take no bytes.
            1 | 2 => Some(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => self.varint().and_then(|length| self.pass(length)),
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                for _ in 0..count {
                    match head & 0x0f {
                        1 | 2 => self.pass(1)?,
                        kind => self.skip(kind, depth + 1)?,
                    }
                }
                Some(())
            }
            12 => {
                let mut field = 0;
                while let Some((id, kind)) = self.field(field)? {
                    field = id;
                    self.skip(kind, depth + 1)?;
                }
                Some(())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_the_rest_is_skipped() {
        // Kind 0, 300 bytes compressed to 100, then a struct (field 5) of two numbers and a string.
        let header = [
            0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0xc8, 0x01, 0x2c, 0x15, 0x02, 0x15, 0x04, 0x18, 2,
            b'a', b'b', 0x00, 0x00, 0xff,
        ];
        let parsed = page_header(&header).unwrap();
        assert_eq!(parsed, PageHeader { uncompressed: 300, compressed: 100, length: 19 });
        for cut in 0..19 {
            assert_eq!(page_header(&header[..cut]), None, "cut after {cut} bytes");
        }
        // A negative size.
        assert_eq!(page_header(&[0x15, 0x00, 0x15, 0x01, 0x15, 0x02, 0x00]), None);
    }
}
