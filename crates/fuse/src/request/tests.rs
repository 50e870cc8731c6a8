use super::*;
use crate::abi::Put;

const UNIQUE: u64 = 7;

fn header(opcode: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.u32(u32::try_from(IN_HEADER + body.len()).unwrap());
    out.u32(opcode);
    for value in [UNIQUE, 9] {
        out.u64(value);
    }
    for value in [1000, 1001, 42, 0] {
        out.u32(value);
    }
    out.bytes(body);
    out
}

fn parse(bytes: &[u8], ext: bool) -> Result<Operation<'_>, Errno> {
    let header = Header::parse(bytes)?;
    Operation::parse(&header, header.body(bytes)?, ext)
}

/// How long the fixed part of each request's body is, and what follows it.
fn shapes() -> Vec<(u32, usize, &'static [u8])> {
    vec![
        (op::LOOKUP, 0, b"a\0"),
        (op::FORGET, 8, b""),
        (op::GETATTR, 16, b""),
        (op::SETATTR, 88, b""),
        (op::SYMLINK, 0, b"a\0b\0"),
        (op::MKNOD, 16, b"a\0"),
        (op::MKDIR, 8, b"a\0"),
        (op::UNLINK, 0, b"a\0"),
        (op::RMDIR, 0, b"a\0"),
        (op::RENAME, 8, b"a\0b\0"),
        (op::RENAME2, 16, b"a\0b\0"),
        (op::LINK, 8, b"a\0"),
        (op::OPEN, 8, b""),
        (op::OPENDIR, 8, b""),
        (op::READ, 40, b""),
        (op::READDIR, 40, b""),
        (op::READDIRPLUS, 40, b""),
        (op::WRITE, 40, b""),
        (op::RELEASE, 24, b""),
        (op::RELEASEDIR, 24, b""),
        (op::FSYNC, 16, b""),
        (op::FSYNCDIR, 16, b""),
        (op::SETXATTR, 8, b"a\0"),
        (op::GETXATTR, 8, b"a\0"),
        (op::LISTXATTR, 8, b""),
        (op::REMOVEXATTR, 0, b"a\0"),
        (op::FLUSH, 24, b""),
        (op::INIT, 8, b""),
        (op::GETLK, 48, b""),
        (op::SETLK, 48, b""),
        (op::SETLKW, 48, b""),
        (op::ACCESS, 4, b""),
        (op::CREATE, 16, b"a\0"),
        (op::TMPFILE, 16, b"/\0"),
        (op::INTERRUPT, 8, b""),
        (op::IOCTL, 32, b""),
        (op::POLL, 24, b""),
        (op::BATCH_FORGET, 8, b""),
        (op::FALLOCATE, 28, b""),
        (op::LSEEK, 20, b""),
        (op::COPY_FILE_RANGE, 56, b""),
        (op::COPY_FILE_RANGE_64, 56, b""),
        (op::STATX, 24, b""),
    ]
}

#[test]
fn every_request_parses_whole_and_fails_truncated() {
    for (opcode, fixed, tail) in shapes() {
        let body = [&vec![0; fixed][..], tail].concat();
        assert!(parse(&header(opcode, &body), false).is_ok(), "opcode {opcode} whole");
        for len in 0..body.len() {
            assert!(parse(&header(opcode, &body[..len]), false).is_err(), "opcode {opcode} of {len} bytes");
        }
    }
    for opcode in [op::READLINK, op::STATFS, op::DESTROY, op::SYNCFS, op::NOTIFY_REPLY] {
        assert!(parse(&header(opcode, b""), false).is_ok());
    }
}

#[test]
fn no_bytes_make_parsing_panic() {
    let mut seed = 1_u64;
    for opcode in (0..80).chain([4096, u32::MAX]) {
        for len in 0..160 {
            let bytes = std::iter::repeat_with(|| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 56).to_le_bytes()[0]
            });
            let mut request = header(opcode, &bytes.take(len).collect::<Vec<_>>());
            if let Ok(Operation::BatchForget(list)) = parse(&request, len % 2 == 0) {
                assert!(list.count() < 16);
            }
            // Extensions longer than the request, and a length that lies.
            request[36] = 0xff;
            assert!(parse(&request, false).is_err());
            request[36] = 0;
            request[0] = request[0].wrapping_add(1);
            assert!(parse(&request, false).is_err());
        }
    }
    for len in 0..IN_HEADER {
        assert!(Header::parse(&vec![0xff; len]).is_err());
    }
}

#[test]
fn unknown_requests_and_bad_names_have_their_errors() {
    assert_eq!(parse(&header(99, b""), false).err(), Some(Errno::ENOSYS));
    let long = [&[b'x'; 256][..], b"\0"].concat();
    assert_eq!(parse(&header(op::LOOKUP, &long), false).err(), Some(Errno::ENAMETOOLONG));
    assert!(parse(&header(op::LOOKUP, &long[1..]), false).is_ok());
    for name in [&b"\0"[..], b"a/b\0", b"a"] {
        assert_eq!(parse(&header(op::LOOKUP, name), false).err(), Some(Errno::EINVAL));
    }
}

#[test]
fn lengths_beyond_the_request_are_refused() {
    let mut body = vec![0; 40];
    body[16] = 5;
    body.extend(b"1234");
    assert_eq!(parse(&header(op::WRITE, &body), false).err(), Some(Errno::EINVAL));
    body.extend(b"5");
    let request = header(op::WRITE, &body);
    assert!(matches!(parse(&request, false), Ok(Operation::Write(WriteOp { data: b"12345", .. }))));
    let forgets = [[0xff; 8], [0; 8]].concat();
    assert_eq!(parse(&header(op::BATCH_FORGET, &forgets), false).err(), Some(Errno::EINVAL));
}

#[test]
fn setattr_has_only_the_fields_that_are_valid() {
    let mut body = Vec::new();
    body.u32(1 << 0 | 1 << 4 | 1 << 8 | 1 << 6 | 1 << 11);
    body.u32(0);
    for value in [3, 4, 5, 100, 200, 300] {
        body.u64(value);
    }
    for value in [1, 2, 3, 0o644, 0, 8, 9, 0] {
        body.u32(value);
    }
    let request = header(op::SETATTR, &body);
    let Ok(Operation::Setattr(set)) = parse(&request, false) else { panic!("not parsed") };
    let expected = SetAttr {
        fh: Some(3),
        mode: Some(0o644),
        atime: Some(TimeSet::At(Timestamp { secs: 100, nanos: 1 })),
        mtime: Some(TimeSet::Now),
        kill_suidgid: true,
        ..SetAttr::default()
    };
    assert_eq!(set, expected);
}

#[test]
fn extended_setxattr_and_extensions_are_told_apart() {
    let mut body = Vec::new();
    for value in [2, 0, 1, 0] {
        body.u32(value);
    }
    body.bytes(b"user.a\0xy");
    let request = header(op::SETXATTR, &body);
    let Ok(Operation::Setxattr(set)) = parse(&request, true) else { panic!("not parsed") };
    assert_eq!((set.name.to_str(), set.value, set.kill_sgid), (Some("user.a"), &b"xy"[..], true));
    let mut request = header(op::MKDIR, b"\0\0\0\0\0\0\0\0dir\0EIGHTEXT");
    request[36..38].copy_from_slice(&1_u16.to_le_bytes());
    let Ok(Operation::Mkdir(op)) = parse(&request, false) else { panic!("not parsed") };
    assert_eq!((op.name.to_str(), op.parent), (Some("dir"), 9));
}
