use std::io::Write as _;

use bytes::Bytes;

use super::*;

const CODINGS: [(Compression, Coding); 3] =
    [(Compression::GZIP, Coding::Gzip), (Compression::ZSTD, Coding::Zstd), (Compression::None, Coding::Identity)];

fn compressed(compression: Compression, data: &[u8]) -> Vec<u8> {
    let mut context = EncoderContext::default();
    let mut encoder = Encoder::new(compression, Vec::new(), &mut context).unwrap();
    encoder.write_all(data).unwrap();
    encoder.finish(&mut context).unwrap()
}

fn zlib(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

fn undo(coding: Coding, input: &[u8], limit: usize) -> Result<Bytes, DecompressError> {
    decompress(coding, Bytes::copy_from_slice(input), limit)
}

/// Data that compresses about as well as profiles.
fn data(size: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b"function_name_address0123456789"[(state >> 24) as usize % 31]
    };
    (0..size).map(next).collect()
}

#[track_caller]
fn assert_too_large(result: Result<Bytes, DecompressError>, limit: usize) {
    match result {
        Err(DecompressError::TooLarge { limit: named }) => assert_eq!(named, limit),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_corrupt(result: Result<Bytes, DecompressError>) {
    let length = result.as_ref().map(Bytes::len);
    assert!(matches!(result, Err(DecompressError::Corrupt { .. })), "{length:?}");
}

/// Guarantees: compressed data decompresses to the original, at every size around the steps of the buffer; a limit of
/// exactly the size is accepted, and one byte less is refused.
#[test]
fn round_trips_at_the_limit() {
    for size in [0, 1, 16 * 1024 - 1, 16 * 1024, 16 * 1024 + 1, 300_000, 2_000_000] {
        let original = data(size);
        for (compression, coding) in CODINGS {
            let packed = compressed(compression, &original);
            assert_eq!(undo(coding, &packed, size).unwrap(), original, "{coding:?} {size}");
            if size > 0 {
                assert_too_large(undo(coding, &packed, size - 1), size - 1);
            }
        }
        assert_eq!(undo(Coding::Deflate, &zlib(&original), size).unwrap(), original);
    }
}

/// Guarantees: one context serves many payloads, also after a damaged or abandoned one.
#[test]
fn contexts_are_reusable() {
    let original = data(100_000);
    let mut context = EncoderContext::default();
    for round in 0..3 {
        let mut abandoned = Encoder::new(Compression::ZSTD, Vec::new(), &mut context).unwrap();
        abandoned.write_all(&original).unwrap();
        drop(abandoned);
        let mut encoder = Encoder::new(Compression::ZSTD, Vec::new(), &mut context).unwrap();
        encoder.write_all(&original).unwrap();
        let packed = Bytes::from(encoder.finish(&mut context).unwrap());
        assert_corrupt(decompress(Coding::Zstd, packed.slice(..packed.len() / 2), 1 << 20));
        let undone = decompress(Coding::Zstd, packed, 1 << 20).unwrap();
        assert_eq!(undone, original, "round {round}");
    }
    assert!(context.zstd.is_some());
}

/// Guarantees: a bomb with a factor of a thousand and more is refused, and its output never exceeds the limit.
#[test]
fn bombs_are_refused() {
    let zeros = vec![0; 32 << 20];
    for (coding, bomb) in [
        (Coding::Gzip, compressed(Compression::GZIP, &zeros)),
        (Coding::Zstd, compressed(Compression::ZSTD, &zeros)),
        (Coding::Deflate, zlib(&zeros)),
    ] {
        assert!(bomb.len() < zeros.len() / 100);
        assert_too_large(undo(coding, &bomb, 1 << 20), 1 << 20);
    }
}

/// Guarantees: the outputs of many small members or frames together count against the limit.
#[test]
fn members_add_up() {
    let part = data(60_000);
    for (compression, coding) in [(Compression::GZIP, Coding::Gzip), (Compression::ZSTD, Coding::Zstd)] {
        let packed = compressed(compression, &part).repeat(3);
        assert_eq!(undo(coding, &packed, 180_000).unwrap(), part.repeat(3));
        assert_too_large(undo(coding, &packed, 179_999), 179_999);
    }
}

/// Guarantees: a frame that announces too large a size is refused before a decoder runs: in this test the frame ends
/// after its header.
#[test]
fn an_announced_size_is_refused_at_once() {
    let packed = zstd::bulk::compress(&data(100_000), 1).unwrap();
    assert_too_large(undo(Coding::Zstd, &packed[..12], 99_999), 99_999);
    assert_corrupt(undo(Coding::Zstd, &packed[..12], 100_000));
}

/// Guarantees: a gzip trailer or a zstd header that claims gigabytes does not allocate them.
#[test]
fn a_lying_size_does_not_allocate() {
    let mut packed = compressed(Compression::GZIP, b"short");
    let size = packed.len() - 4;
    packed[size..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_corrupt(undo(Coding::Gzip, &packed, usize::MAX));
    // Magic number, a descriptor with an 8-byte size and no window, the size, an empty last block.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0b1110_0000];
    frame.extend_from_slice(&(1_u64 << 40).to_le_bytes());
    frame.extend_from_slice(&[1, 0, 0]);
    assert_corrupt(undo(Coding::Zstd, &frame, usize::MAX));
}

/// Guarantees: one gzip member without optional fields, and one zstd frame, count as one piece. With another member or
/// frame before or after it, even an empty one, the payload is read but does not count as one piece.
#[test]
fn pieces_are_counted() {
    let in_one = |coding, packed: &[u8], plain: &[u8]| {
        let output = decompress_granted(coding, Bytes::copy_from_slice(packed), 1 << 20, &mut |_| true).unwrap();
        assert_eq!(output.plain, plain);
        output.in_one_piece
    };
    for (compression, coding) in [(Compression::GZIP, Coding::Gzip), (Compression::ZSTD, Coding::Zstd)] {
        let (one, empty) = (compressed(compression, b"payload"), compressed(compression, b""));
        assert!(in_one(coding, &one, b"payload"));
        assert!(!in_one(coding, &[&one[..], &one].concat(), b"payloadpayload"));
        assert!(!in_one(coding, &[&empty[..], &one].concat(), b"payload"));
        assert!(!in_one(coding, &[&one[..], &empty].concat(), b"payload"));
    }
    assert!(!in_one(Coding::Identity, b"payload", b"payload"));
    let mut named = flate2::GzBuilder::new().filename("a.bin").write(Vec::new(), flate2::Compression::new(1));
    named.write_all(b"payload").unwrap();
    assert!(!in_one(Coding::Gzip, &named.finish().unwrap(), b"payload"));
}

/// Guarantees: a frame with a window above 8 MiB is refused, even if its content does not need the window.
#[test]
fn a_large_zstd_window_is_refused() {
    let with_window = |log| {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.set_parameter(zstd::stream::raw::CParameter::WindowLog(log)).unwrap();
        encoder.write_all(b"tiny").unwrap();
        encoder.finish().unwrap()
    };
    assert_eq!(undo(Coding::Zstd, &with_window(23), 100).unwrap(), &b"tiny"[..]);
    assert_corrupt(undo(Coding::Zstd, &with_window(24), 100));
}

/// Guarantees: truncated input is an error at any length, and never results in a shorter payload.
#[test]
fn truncation_is_an_error() {
    let original = data(3000);
    for (coding, packed) in [
        (Coding::Gzip, compressed(Compression::GZIP, &original)),
        (Coding::Zstd, compressed(Compression::ZSTD, &original)),
        (Coding::Deflate, zlib(&original)),
    ] {
        for end in 0..packed.len() {
            assert_corrupt(undo(coding, &packed[..end], 1 << 20));
        }
    }
}

/// Guarantees: bytes after the end are an error.
#[test]
fn trailing_garbage_is_an_error() {
    for (coding, mut packed) in [
        (Coding::Gzip, compressed(Compression::GZIP, b"payload")),
        (Coding::Zstd, compressed(Compression::ZSTD, b"payload")),
        (Coding::Deflate, zlib(b"payload")),
    ] {
        packed.extend_from_slice(b"garbage");
        assert_corrupt(undo(coding, &packed, 1 << 20));
    }
}

/// Guarantees: in a format with a checksum, a changed byte never results in a wrong payload.
#[test]
fn damage_is_an_error() {
    let original = data(3000);
    let packed = compressed(Compression::GZIP, &original);
    for place in 10..packed.len() {
        let mut damaged = packed.clone();
        damaged[place] ^= 0x10;
        match undo(Coding::Gzip, &damaged, 1 << 20) {
            // The padding bits in the last byte of the stream have no meaning.
            Ok(undone) => assert!(undone == original && place == packed.len() - 9, "byte {place}"),
            error => assert_corrupt(error),
        }
    }
}

/// Guarantees: names are parsed as HTTP and the Collector write them, and stacked codings are refused.
#[test]
fn content_encodings_are_parsed() {
    let parse = |text| Coding::parse(Some(text));
    assert_eq!(Coding::parse(None), Ok(Coding::Identity));
    for (text, coding) in [
        ("", Coding::Identity),
        ("identity", Coding::Identity),
        ("GZIP", Coding::Gzip),
        ("x-gzip", Coding::Gzip),
        ("identity, zstd", Coding::Zstd),
        ("deflate", Coding::Deflate),
        ("zlib", Coding::Deflate),
    ] {
        assert_eq!(parse(text), Ok(coding), "{text}");
    }
    assert_eq!(parse("gzip, zstd"), Err(CodingError::Stacked));
    assert_eq!(parse("snappy"), Err(CodingError::Unknown("snappy".to_owned())));
    assert_eq!(parse(&"x".repeat(9000)), Err(CodingError::Unknown("x".repeat(40))));
}

/// Guarantees: levels outside the range are clamped.
#[test]
fn levels_are_clamped() {
    for compression in [
        Compression::Gzip { level: 0 },
        Compression::Gzip { level: 99 },
        Compression::Zstd { level: -7 },
        Compression::Zstd { level: 99 },
    ] {
        let coding = Coding::parse(compression.content_encoding()).unwrap();
        assert_eq!(undo(coding, &compressed(compression, b"payload"), 100).unwrap(), &b"payload"[..]);
    }
    assert_eq!(Compression::GZIP.with_level(-3), Compression::Gzip { level: 1 });
    assert_eq!(Compression::ZSTD.with_level(30), Compression::Zstd { level: 9 });
}

/// Guarantees: no level uses more memory than documented.
#[test]
fn contexts_stay_small() {
    let held = |level| {
        let mut context = zstd::zstd_safe::CCtx::create();
        let mut zstd = zstd::stream::raw::Encoder::with_context(&mut context);
        super::encoder::parameters(level).into_iter().for_each(|parameter| zstd.set_parameter(parameter).unwrap());
        let mut writer = zstd::stream::zio::Writer::new(std::io::sink(), zstd);
        writer.write_all(&data(3 << 20)).unwrap();
        writer.finish().unwrap();
        drop(writer);
        context.sizeof()
    };
    for (level, most) in [(1, 1_500_000), (3, 4_000_000), (9, 14_000_000), (99, 14_000_000)] {
        assert!(held(level) < most, "level {level} holds {}", held(level));
    }
}

/// Guarantees: memory is requested before it is allocated, in growing amounts up to at least the output's size, and
/// decompression stops if it is refused.
#[test]
fn memory_is_granted_before_it_is_taken() {
    let data = vec![7_u8; 1 << 20];
    for (coding, packed) in [
        (Coding::Gzip, compressed(Compression::GZIP, &data)),
        (Coding::Zstd, compressed(Compression::ZSTD, &data)),
        (Coding::Deflate, zlib(&data)),
        (Coding::Brotli, BROTLI_MEBIBYTE.to_vec()),
    ] {
        let packed = Bytes::from(packed);
        let mut asked = Vec::new();
        let output = decompress_granted(coding, packed.clone(), data.len(), &mut |wanted| {
            asked.push(wanted);
            true
        });
        assert_eq!(output.unwrap().plain, data);
        assert!(asked.is_sorted() && asked.last().is_some_and(|&most| most >= data.len()), "{asked:?}");
        let refused = decompress_granted(coding, packed, data.len(), &mut |wanted| wanted < 300_000);
        assert!(matches!(refused, Err(DecompressError::NotGranted { wanted: 300_000.. })), "{refused:?}");
    }
}

/// 1 MiB of the byte 7, compressed by Google's brotli 1.2.
const BROTLI_MEBIBYTE: &[u8] = b"\x5b\xff\xff\x8f\x5f\xe2\x20\x1e\x0b\x04\x72\xef\x1f\x00";

/// An envelope, compressed by Google's brotli 1.2.
const BROTLI_ENVELOPE: &[u8] = b"\
    \x1b\x5c\x00\x50\x44\x75\xd3\xcf\xc8\x6a\x04\x30\x08\x74\xce\x3c\x67\xec\xc9\x85\x26\xc0\
    \x06\x1c\x38\x64\xeb\xba\xd8\x26\x3b\x0f\x1b\x70\x46\x69\xdb\x32\xef\x03\x78\x3e\xff\x86\
    \x81\xe1\x83\xae\x1a\x4e\xb6\xfa\xae\xa9\x5d\xfb\xe4\xe7\xab\x46\x6e\xdb\x71\xe5\x60\x6b\
    \x60\xe8\x05\x09\x69\xc1\x4a\xbe\x72\x05\x21\x01";

/// Guarantees: streams of another implementation decompress under the limit, the empty stream included; a stream that
/// is damaged, truncated or followed by other bytes is refused.
#[test]
fn brotli() {
    let plain =
        b"{\"event_id\":\"9ec79c33ec9942ab8353589fcb2e04dc\"}\n{\"type\":\"attachment\",\"length\":10}\nhelloworld\n";
    assert_eq!(undo(Coding::Brotli, BROTLI_ENVELOPE, plain.len()).unwrap(), &plain[..]);
    assert_too_large(undo(Coding::Brotli, BROTLI_ENVELOPE, plain.len() - 1), plain.len() - 1);
    assert_eq!(undo(Coding::Brotli, BROTLI_MEBIBYTE, 1 << 20).unwrap(), vec![7; 1 << 20]);
    assert_too_large(undo(Coding::Brotli, BROTLI_MEBIBYTE, 1 << 16), 1 << 16);
    assert_eq!(undo(Coding::Brotli, b"\x3b", 10).unwrap(), b""[..]);
    for end in 0..BROTLI_ENVELOPE.len() {
        assert_corrupt(undo(Coding::Brotli, &BROTLI_ENVELOPE[..end], 1000));
    }
    assert_corrupt(undo(Coding::Brotli, &[BROTLI_ENVELOPE, b"\0"].concat(), 1000));
    assert_corrupt(undo(Coding::Brotli, &[0xff; 40], 1000));
}

/// Guarantees: decompression in parts gives the same output as in one piece, for every coding, up to the limit and not
/// beyond; damaged input is an error.
#[test]
fn part_by_part() {
    let data = data(300_000);
    let into = |coding, input: &[u8], limit| {
        let mut output = Vec::new();
        decompress_into(coding, input, limit, &mut output).map(|()| output)
    };
    let packed = CODINGS.map(|(compression, coding)| (coding, compressed(compression, &data)));
    for (coding, packed) in packed.into_iter().chain([(Coding::Deflate, zlib(&data))]) {
        assert_eq!(into(coding, &packed, data.len()).unwrap(), data);
        assert!(into(coding, &packed, data.len() - 1).unwrap_err().to_string().contains("larger than 299999 bytes"));
        if coding != Coding::Identity {
            into(coding, &packed[..packed.len() / 2], data.len()).unwrap_err();
        }
    }
    assert_eq!(into(Coding::Brotli, BROTLI_MEBIBYTE, 1 << 20).unwrap(), vec![7; 1 << 20]);
    into(Coding::Brotli, &BROTLI_ENVELOPE[..40], 1 << 20).unwrap_err();
}
