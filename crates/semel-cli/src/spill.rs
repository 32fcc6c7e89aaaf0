//! What a step writes, on its way beside the ledger: in memory up to one piece, from then on in a file without a
//! name, and not at all past the limit.
//!
//! Pieces are cuts through a row of frames (`stream`, length, bytes), in the order in which they were read, so that
//! a replay is byte for byte and keeps stdout and stderr in their order.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use semel::engine::desk::PIECE_LIMIT;
use semel_supervise::Stream;

/// Before the bytes of a frame: which stream, and how many.
const FRAME_HEAD: usize = 5;

/// What was written so far.
#[derive(Debug)]
pub(crate) struct Spill {
    folder: PathBuf,
    limit: u64,
    out_bytes: u64,
    err_bytes: u64,
    /// What is not in the file: at most one piece.
    buffer: Vec<u8>,
    /// Where the last frame of the buffer begins.
    last: Option<(Stream, usize)>,
    file: Option<std::fs::File>,
    spilled: u64,
    lost: Option<String>,
}

/// What was written, to be kept.
#[derive(Debug)]
pub(crate) struct Spilled {
    pub(crate) out_bytes: u64,
    pub(crate) err_bytes: u64,
    /// Why nothing is kept.
    pub(crate) lost: Option<String>,
    file: Option<std::fs::File>,
    spilled: u64,
    buffer: Vec<u8>,
}

impl Spill {
    /// A spill into this folder, which keeps at most so many bytes.
    pub(crate) fn new(folder: &Path, limit: u64) -> Spill {
        Spill {
            folder: folder.to_owned(),
            limit,
            out_bytes: 0,
            err_bytes: 0,
            buffer: Vec::new(),
            last: None,
            file: None,
            spilled: 0,
            lost: None,
        }
    }

    /// More was written.
    pub(crate) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Out => self.out_bytes += bytes.len() as u64,
            Stream::Err => self.err_bytes += bytes.len() as u64,
        }
        if self.lost.is_some() {
            return;
        }
        if self.out_bytes + self.err_bytes > self.limit {
            return self.lose(format!("it wrote more than {} bytes", self.limit));
        }
        let mut bytes = bytes;
        while !bytes.is_empty() {
            if self.buffer.len() + FRAME_HEAD >= PIECE_LIMIT
                && let Err(why) = self.flush()
            {
                return self.lose(format!("it could not be written to {}: {why}", self.folder.display()));
            }
            bytes = self.fill(stream, bytes);
        }
    }

    /// As much as fits, into the last frame if that is of the same stream.
    fn fill<'a>(&mut self, stream: Stream, bytes: &'a [u8]) -> &'a [u8] {
        let start = match self.last {
            Some((last, start)) if last == stream => start,
            _ => {
                let start = self.buffer.len();
                self.buffer.push(if stream == Stream::Out { 1 } else { 2 });
                self.buffer.extend_from_slice(&[0; 4]);
                self.last = Some((stream, start));
                start
            }
        };
        let room = PIECE_LIMIT.saturating_sub(self.buffer.len());
        let (now, later) = bytes.split_at(bytes.len().min(room));
        self.buffer.extend_from_slice(now);
        let length = self.buffer.len() - start - FRAME_HEAD;
        let length = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        if let Some(place) = self.buffer.get_mut(start + 1..start + FRAME_HEAD) {
            place.copy_from_slice(&length);
        }
        later
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(nameless(&self.folder)?),
        };
        // every piece in the file has the same length, so that the cuts are known
        self.buffer.resize(PIECE_LIMIT, 0);
        file.write_all(&self.buffer)?;
        self.spilled += 1;
        self.buffer.clear();
        self.last = None;
        Ok(())
    }

    fn lose(&mut self, why: String) {
        self.lost = Some(why);
        self.buffer = Vec::new();
        self.file = None;
        self.spilled = 0;
    }

    /// The command has ended.
    pub(crate) fn end(self) -> Spilled {
        let Spill { out_bytes, err_bytes, buffer, file, spilled, lost, .. } = self;
        Spilled { out_bytes, err_bytes, lost, file, spilled, buffer }
    }
}

impl Spilled {
    /// How many pieces there are.
    pub(crate) fn pieces(&self) -> u32 {
        let last = u64::from(!self.buffer.is_empty());
        u32::try_from(self.spilled + last).unwrap_or(u32::MAX)
    }

    /// The pieces before the last one, each handed on.
    pub(crate) fn each<E>(
        &mut self,
        mut hand_on: impl FnMut(u32, &[u8]) -> Result<(), E>,
        failed: impl Fn(std::io::Error) -> E,
    ) -> Result<(), E> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.seek(SeekFrom::Start(0)).map_err(&failed)?;
        let mut piece = vec![0; PIECE_LIMIT];
        for n in 0..self.spilled {
            file.read_exact(&mut piece).map_err(&failed)?;
            hand_on(u32::try_from(n).unwrap_or(u32::MAX), &piece)?;
        }
        Ok(())
    }

    /// The last piece.
    pub(crate) fn last(&self) -> &[u8] {
        &self.buffer
    }
}

/// A private file that is gone when it is closed, whatever happens to this process.
fn nameless(folder: &Path) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).mode(0o600);
    #[cfg(target_os = "linux")]
    if let Ok(file) = open.clone().custom_flags(libc::O_TMPFILE).open(folder) {
        return Ok(file);
    }
    let name = folder.join(format!("spill-{}", std::process::id()));
    let file = open.create_new(true).open(&name)?;
    std::fs::remove_file(&name)?;
    Ok(file)
}

/// Play a piece: each frame to its stream. `None` if it is damaged.
pub(crate) fn play(piece: &[u8], mut to: impl FnMut(Stream, &[u8])) -> Option<()> {
    let mut rest = piece;
    while let Some((&kind, after)) = rest.split_first() {
        let stream = match kind {
            // what fills up a piece
            0 => return Some(()),
            1 => Stream::Out,
            2 => Stream::Err,
            _ => return None,
        };
        let (length, after) = after.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (bytes, after) = after.split_at_checked(length)?;
        to(stream, bytes);
        rest = after;
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn through(limit: u64, writes: &[(Stream, Vec<u8>)]) -> Option<(Vec<u8>, Vec<u8>)> {
        let folder = tempfile::tempdir().unwrap();
        let mut spill = Spill::new(folder.path(), limit);
        for (stream, bytes) in writes {
            spill.push(*stream, bytes);
            assert!(spill.buffer.len() <= PIECE_LIMIT);
        }
        let mut spilled = spill.end();
        if spilled.lost.is_some() {
            assert_eq!(spilled.pieces(), 0);
            return None;
        }
        let mut pieces = Vec::new();
        let keep = |_, piece: &[u8]| {
            pieces.push(piece.to_vec());
            Ok(())
        };
        spilled.each(keep, |why| why).unwrap();
        pieces.push(spilled.last().to_vec());
        let (mut out, mut err) = (Vec::new(), Vec::new());
        for piece in pieces {
            play(&piece, |stream, bytes| match stream {
                Stream::Out => out.extend_from_slice(bytes),
                Stream::Err => err.extend_from_slice(bytes),
            })
            .unwrap();
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a file without a name");
        Some((out, err))
    }

    #[test]
    fn what_is_replayed_is_what_was_written() {
        let mut seed = 1_u64;
        let mut random = move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap()
        };
        for _ in 0..20 {
            let writes: Vec<_> = (0..random() % 40)
                .map(|_| {
                    let stream = if random() % 2 == 0 { Stream::Out } else { Stream::Err };
                    (stream, vec![u8::try_from(random() % 256).unwrap(); random() % 100_000])
                })
                .collect();
            let of = |wanted| {
                writes.iter().filter(|(s, _)| *s == wanted).flat_map(|(_, b)| b.clone()).collect::<Vec<u8>>()
            };
            assert_eq!(through(u64::MAX, &writes), Some((of(Stream::Out), of(Stream::Err))));
        }
    }

    #[test]
    fn the_limit_is_kept_to_the_byte() {
        assert!(through(10, &[(Stream::Out, vec![1; 6]), (Stream::Err, vec![2; 4])]).is_some());
        assert!(through(10, &[(Stream::Out, vec![1; 6]), (Stream::Err, vec![2; 5])]).is_none());
        assert_eq!(through(0, &[]), Some((vec![], vec![])));
    }

    #[test]
    fn rubbish_is_no_piece() {
        for bad in [&[3][..], &[1, 9, 0, 0, 0, 1], &[1, 0], &[2, 255, 255, 255, 255]] {
            assert_eq!(play(bad, |_, _| ()), None);
        }
    }
}
