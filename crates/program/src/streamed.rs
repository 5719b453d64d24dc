//! An answer of any length, from one of the broker's own doors: HTTP/1.1, written out as it comes.
//!
//! ```text
//! request, Connection: close → head → a body of a known length, in chunks, or until the end of the connection → out
//! ```
//! Only the whole of a body is a success: what ends before is told from it. A refusal is kept, within bounds, for whoever shows
//! it. A server that has refused in the middle of a long request is heard all the same.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};

use crate::AdminRequest;

/// Bytes of one line of a head, and of a head.
const LINE_BYTES_MAX: u64 = 16 << 10;
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Bytes of a refusal.
const REFUSAL_BYTES_MAX: u64 = 1 << 20;

/// What came of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamedAnswer {
    /// All of the body was written.
    Whole,
    /// Whoever reads what is written has read enough.
    Enough,
    /// It could not be written out, and why.
    Unwritten(String),
    /// The broker says no: the status, and why.
    Refused(u16, Vec<u8>),
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyLength {
    Known(u64),
    Chunks,
    UntilTheEnd,
}

/// Sends a request, and writes out what is answered.
pub(crate) fn talk(
    stream: impl Read + Write,
    request: &AdminRequest<'_>,
    (host, authorization): (&str, Option<&str>),
    out: &mut dyn Write,
) -> Result<StreamedAnswer, Error> {
    let mut stream = BufReader::new(stream);
    let AdminRequest { method, path, accept, kind, body } = *request;
    let authorization = authorization.map(|it| format!("Authorization: {it}\r\n")).unwrap_or_default();
    let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: {accept}\r\nContent-Length: {}\r\n\
         {kind}{authorization}\r\n",
        body.len()
    );
    let writer = stream.get_mut();
    let sent = writer.write_all(head.as_bytes()).and_then(|()| writer.write_all(body)).and_then(|()| writer.flush());
    // Whoever does not read on may have said why.
    let (status, length) = match (sent, read_head(&mut stream)) {
        (Err(unsent), Err(_)) => return Err(unsent),
        (_, head) => head?,
    };
    if !(200..300).contains(&status) {
        let mut why = Vec::new();
        // As much of it as there is: the status is known.
        let _ = copy_body(&mut stream, length, REFUSAL_BYTES_MAX, &mut why);
        return Ok(StreamedAnswer::Refused(status, why));
    }
    match copy_body(&mut stream, length, u64::MAX, out).and_then(|()| out.flush().map_err(BodyFault::Out)) {
        Ok(()) => Ok(StreamedAnswer::Whole),
        Err(BodyFault::Out(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(StreamedAnswer::Enough),
        Err(BodyFault::Out(error)) => Ok(StreamedAnswer::Unwritten(error.to_string())),
        Err(BodyFault::In(error)) => Err(error),
    }
}

/// Which end has failed.
enum BodyFault {
    In(Error),
    Out(Error),
}

fn not_http() -> Error {
    Error::new(ErrorKind::InvalidData, "it does not speak HTTP")
}

fn broken_off() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "the answer is broken off: what came of it is not the whole")
}

fn read_line(stream: &mut impl BufRead) -> Result<String, Error> {
    let mut line = Vec::new();
    stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(if line.is_empty() { broken_off() } else { not_http() });
    }
    let line = String::from_utf8(line).map_err(|_| not_http())?;
    Ok(line.trim_end_matches('\r').to_owned())
}

fn read_head(stream: &mut impl BufRead) -> Result<(u16, BodyLength), Error> {
    let first = read_line(stream)?;
    let mut words = first.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1.")).ok_or_else(not_http)?;
    let status: u16 = words.next().and_then(|word| word.parse().ok()).ok_or_else(not_http)?;
    let (mut length, mut bytes) = (BodyLength::UntilTheEnd, first.len());
    loop {
        let line = read_line(stream)?;
        if line.is_empty() {
            break;
        }
        bytes += line.len();
        let (name, value) = line.split_once(':').filter(|_| bytes <= HEAD_BYTES_MAX).ok_or_else(not_http)?;
        match (name.to_ascii_lowercase().as_str(), value.trim()) {
            ("transfer-encoding", how) if how.eq_ignore_ascii_case("chunked") => length = BodyLength::Chunks,
            ("transfer-encoding", _) => return Err(not_http()),
            ("content-length", number) if length != BodyLength::Chunks => {
                length = BodyLength::Known(number.parse().map_err(|_| not_http())?);
            }
            _ => {}
        }
    }
    if status == 204 || status == 304 {
        length = BodyLength::Known(0);
    }
    Ok((status, length))
}

fn copy_body(
    stream: &mut impl BufRead,
    length: BodyLength,
    bytes_max: u64,
    out: &mut dyn Write,
) -> Result<(), BodyFault> {
    match length {
        BodyLength::Known(bytes) => copy(stream, bytes.min(bytes_max), true, out).map(drop),
        BodyLength::UntilTheEnd => copy(stream, bytes_max, false, out).map(drop),
        BodyLength::Chunks => {
            let mut left = bytes_max;
            loop {
                let line = read_line(stream).map_err(BodyFault::In)?;
                let size = line.split(';').next().unwrap_or_default().trim();
                let size = u64::from_str_radix(size, 16).map_err(|_| BodyFault::In(not_http()))?;
                if size == 0 {
                    // Nobody needs what may come behind: the connection is not used again.
                    return Ok(());
                }
                let written = copy(stream, size.min(left), true, out)?;
                left -= written;
                if left == 0 {
                    return Ok(());
                }
                if !read_line(stream).map_err(BodyFault::In)?.is_empty() {
                    return Err(BodyFault::In(not_http()));
                }
            }
        }
    }
}

/// Writes so many bytes, or fewer if that is no fault.
fn copy(stream: &mut impl BufRead, bytes: u64, is_exact: bool, out: &mut dyn Write) -> Result<u64, BodyFault> {
    let mut left = bytes;
    while left > 0 {
        let piece = match stream.fill_buf() {
            Ok(piece) => piece,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            // A session of TLS that ends without a word is an error here, and so is a socket that is cut.
            Err(error) => return Err(BodyFault::In(error)),
        };
        if piece.is_empty() {
            return if is_exact { Err(BodyFault::In(broken_off())) } else { Ok(bytes - left) };
        }
        let length = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        out.write_all(&piece[..length]).map_err(BodyFault::Out)?;
        stream.consume(length);
        left -= length as u64;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// A connection on which this was answered; it takes so many bytes of a request.
    struct Answered(Cursor<Vec<u8>>, usize);

    impl Read for Answered {
        fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
            // In small pieces, as they come.
            let length = buffer.len().min(7);
            self.0.read(&mut buffer[..length])
        }
    }

    impl Write for Answered {
        fn write(&mut self, bytes: &[u8]) -> Result<usize, Error> {
            let taken = bytes.len().min(self.1);
            self.1 -= taken;
            if taken == 0 { Err(ErrorKind::BrokenPipe.into()) } else { Ok(taken) }
        }

        fn flush(&mut self) -> Result<(), Error> {
            Ok(())
        }
    }

    fn ask_of(answer: &str, takes: usize) -> (Result<StreamedAnswer, ErrorKind>, String) {
        let request = AdminRequest { method: "GET", path: "/", accept: "*/*", kind: "", body: b"body" };
        let (stream, mut out) = (Answered(Cursor::new(answer.into()), takes), Vec::new());
        let came = talk(stream, &request, ("h:1", None), &mut out).map_err(|error| error.kind());
        (came, String::from_utf8(out).unwrap())
    }

    fn ask(answer: &str) -> (Result<StreamedAnswer, ErrorKind>, String) {
        ask_of(answer, usize::MAX)
    }

    const CHUNKS: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n";

    #[test]
    fn the_whole_of_a_body_is_written_however_its_length_is_said() {
        for (answer, body) in [
            (CHUNKS, "abc0123456789"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabcd", "abc"),
            ("HTTP/1.0 200 OK\r\n\r\nabc", "abc"),
            ("HTTP/1.1 204 No Content\r\n\r\n", ""),
        ] {
            assert_eq!(ask(answer), (Ok(StreamedAnswer::Whole), body.to_owned()), "{answer}");
        }
    }

    #[test]
    fn a_part_is_told_from_the_whole_wherever_it_ends() {
        let head = CHUNKS.find("3\r\nabc").unwrap();
        let last = CHUNKS.rfind("0\r\n\r\n").unwrap() + 3;
        for end in 0..last {
            let (came, out) = ask(&CHUNKS[..end]);
            assert!(came.is_err(), "{end}: {came:?} {out}");
            assert!(end >= head || out.is_empty());
        }
        assert_eq!(ask("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nabc").0, Err(ErrorKind::UnexpectedEof));
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for answer in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 abc\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno field\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
        ] {
            assert_eq!(ask(answer).0, Err(ErrorKind::InvalidData), "{answer}");
        }
        assert_eq!(ask(&format!("HTTP/1.1 200 {}", "x".repeat(1 << 20))).0, Err(ErrorKind::InvalidData));
    }

    #[test]
    fn a_refusal_is_heard_also_by_who_could_not_say_all_and_is_not_written_out() {
        let refused = "HTTP/1.1 413 Payload Too Large\r\ncontent-length: 3\r\n\r\nwhy";
        for takes in [usize::MAX, 20] {
            let (came, out) = ask_of(refused, takes);
            assert_eq!((came, out.as_str()), (Ok(StreamedAnswer::Refused(413, b"why".to_vec())), ""), "{takes}");
        }
        assert_eq!(ask_of("", 20).0, Err(ErrorKind::BrokenPipe), "then it is known what has failed first");
        let endless = format!("HTTP/1.1 500 E\r\n\r\n{}", "x".repeat(3 << 20));
        let Ok(StreamedAnswer::Refused(500, why)) = ask(&endless).0 else { panic!("it is a refusal") };
        assert_eq!(why.len() as u64, REFUSAL_BYTES_MAX);
    }
}
