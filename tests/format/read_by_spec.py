#!/usr/bin/env python3
"""Reads regions out of tailrace's files. Written from docs/format.md alone, to show that the page is complete.

read_by_spec.py DIR JOB EPOCH RUN RANK NAME   writes the region's bytes to standard output
read_by_spec.py --check GOLDEN_DIR PAGE       reads the golden epochs and captured parts whole, and compares the
                                              page's hex dumps with the file they show
"""
import pathlib
import re
import struct
import sys

CRC_TABLE = []
for value in range(256):
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    CRC_TABLE.append(value)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


FILES_APART = 1  # a required feature of a manifest


def must(claim, sentence):
    if not claim:
        raise ValueError(sentence)


def open_record(data, magic, size, known_features=0):
    must(len(data) >= size >= 32, f"{magic}: cut off")
    data = data[:size]
    found, major, _minor, required, _optional, crc, record_bytes = struct.unpack_from("<8sHHIIIQ", data)
    must(found == magic.encode(), f"{magic}: other magic")
    must(record_bytes == size, f"{magic}: {record_bytes} bytes instead of {size}")
    must(crc == crc32c(data[:20] + bytes(4) + data[24:]), f"{magic}: checksum")
    must(major == 1 and required & ~known_features == 0, f"{magic}: unsupported version or feature")
    return data


def read_manifest(data):
    """Rank, rank count, stream bytes, {name: (stream offset, bytes, array, checksums)}, and the names of what lies apart."""
    data = open_record(data, "TRCMANIF", len(data), FILES_APART)
    rank, rank_count, stream_bytes, _flags, block_bytes, region_count = struct.unpack_from("<IIQIIQ", data, 32)
    must(block_bytes == 262144, "check block bytes")
    at, regions = 64, {}
    for _ in range(region_count):
        name_bytes, kind, element, dimensions, flags, offset, size, crc_count = struct.unpack_from("<IBBBBQQQ", data, at)
        name = data[at + 32:at + 32 + name_bytes].decode("utf-8", "surrogateescape")
        at = (at + 32 + name_bytes + 7) // 8 * 8
        array = None
        if kind == 1:
            numbers = struct.unpack_from(f"<{3 * dimensions}Q", data, at)
            array = (element, *(numbers[i * dimensions:(i + 1) * dimensions] for i in range(3)), flags)
            at += 24 * dimensions
        crcs = struct.unpack_from(f"<{crc_count}I", data, at)
        at = (at + 4 * crc_count + 7) // 8 * 8
        must(len(data) <= offset and offset + size <= stream_bytes and name not in regions, f"region {name}")
        regions[name] = (offset, size, array, crcs)
    names = list(regions)
    while struct.unpack_from("<I", data, 12)[0] & FILES_APART and names and re.match("file/[^/]", names[-1]):
        names.pop()
    return rank, rank_count, stream_bytes, regions, list(regions)[len(names):]


def read_shared_file(path, job, epoch, run, index):
    """Run uid, K, rank count, {rank: (manifest checksum, stream bytes, manifest bytes)}, and extents."""
    file = path.read_bytes()
    header = open_record(file, "TRCSHARE", 512)
    (found_epoch, found_run, k, uid, files, ranks, leaders, job_bytes, block, area,
     stripe) = struct.unpack_from("<QIIQIIIIQQQ", header, 32)
    must((found_epoch, found_run, k, header[96:96 + job_bytes]) == (epoch, run, index, job.encode()), f"{path}: name")
    data_start = block * (1 + leaders) + area * leaders
    streams, extents = {}, []
    for leader in range(leaders):
        slot = open_record(file[block * (1 + leader):], "TRCSLOT_", 512)
        slot_epoch, slot_run, slot_leader, slot_uid, index_bytes, data_bytes, _ms, index_crc = struct.unpack_from(
            "<QIIQQQQI", slot, 32)
        must((slot_epoch, slot_run, slot_leader, slot_uid) == (epoch, run, leader, uid), f"{path}: slot {leader}")
        at = block * (1 + leaders) + area * leader
        must(index_crc == crc32c(file[at:at + index_bytes]), f"{path}: index {leader}")
        data = open_record(file[at:], "TRCINDEX", index_bytes)
        stream_count, extent_count = struct.unpack_from("<QQ", data, 32)
        for i in range(stream_count):
            rank, crc, stream_bytes, manifest_bytes = struct.unpack_from("<IIQQ", data, 48 + 24 * i)
            must(streams.setdefault(rank, (crc, stream_bytes, manifest_bytes)) == (crc, stream_bytes, manifest_bytes),
                 f"{path}: streams disagree")
        for i in range(extent_count):
            stream_offset, size, file_offset, rank = struct.unpack_from("<QQQI", data, 48 + 24 * stream_count + 32 * i)
            must(file_offset >= data_start and file_offset + size <= len(file), f"{path}: extent leaves the file")
            must(stripe == 0 or (file_offset - data_start) // stripe % leaders == leader, f"{path}: stripe")
            data_bytes -= size
            extents.append((rank, stream_offset, file[file_offset:file_offset + size]))
        must(data_bytes == 0, f"{path}: sum of extents")
    return uid, files, ranks, streams, extents


def read_epoch(directory, job, epoch, run):
    """Every rank's stream."""
    name = f"{job}.e{epoch:09}.r{run:04}."
    file_count = int(next(directory.glob(name + "*of*.tailrace*")).name[len(name):].split("of")[1].split(".")[0])
    about, streams, pieces = set(), {}, {}
    for index in range(file_count):
        path = directory / f"{name}{index + 1}of{file_count}.tailrace"
        if not path.exists():
            path = path.with_name(path.name + ".unfinished")
        uid, files, ranks, listed, extents = read_shared_file(path, job, epoch, run, index)
        about.add((uid, files, ranks))
        for rank, info in listed.items():
            must(streams.setdefault(rank, info) == info, f"{path}: streams disagree")
        for rank, offset, data in extents:
            pieces.setdefault(rank, []).append((offset, data))
    must(len(about) == 1 and set(streams) == set(range(about.pop()[2])), "files do not belong together")
    epoch_streams = {}
    for rank, (crc, stream_bytes, manifest_bytes) in streams.items():
        stream = b""
        for offset, data in sorted(pieces[rank]):
            must(offset == len(stream), f"rank {rank}: gap or overlap")
            stream += data
        must(len(stream) == stream_bytes and crc32c(stream[:manifest_bytes]) == crc, f"rank {rank}: stream")
        stream += read_files_apart(directory, job, epoch, run, stream, manifest_bytes)
        epoch_streams[rank] = (stream, manifest_bytes)
    return epoch_streams


def read_files_apart(directory, job, epoch, run, stream, manifest_bytes):
    """What follows in the stream, from the files of the program."""
    *_, stream_bytes, regions, apart = read_manifest(stream[:manifest_bytes])
    must(len(stream) == (regions[apart[0]][0] if apart else stream_bytes), "the stream's end")
    place = directory / f"{job}.files" / f"e{epoch:09}"
    mark = place / "tailrace.complete"
    if not mark.exists() or f"run {run}" not in mark.read_text().splitlines()[:4]:
        place = place.with_name(f"e{epoch:09}.r{run:04}.unfinished")
    more = bytearray(stream_bytes - len(stream))
    for name in apart:
        offset, size, _array, _crcs = regions[name]
        data = (place / name[len("file/"):]).read_bytes()
        must(len(data) == size, f"{place}: {name}")
        more[offset - len(stream):offset - len(stream) + size] = data
    return bytes(more)


def read_part(path):
    file = path.read_bytes()
    header = open_record(file, "TRCPARTH", 4096)
    (_epoch, _run, _ranks, _uid, _sequence, rank, _flags, stream_bytes, manifest_bytes, crc,
     _job_bytes) = struct.unpack_from("<QIIQQIIQQII", header, 32)
    directory_bytes = struct.unpack_from("<I", header, 200)[0]
    directory = header[208:208 + directory_bytes].decode()
    apart_bytes = struct.unpack_from("<Q", header, 208 + directory_bytes)[0]
    stream = file[4096:4096 + stream_bytes]
    must(len(stream) == stream_bytes and crc32c(stream[:manifest_bytes]) == crc, f"{path}: stream")
    *_, regions, apart = read_manifest(stream[:manifest_bytes])
    must(apart_bytes == (stream_bytes - regions[apart[0]][0] if apart else 0), f"{path}: bytes that lie apart")
    return rank, stream, manifest_bytes, directory


def read_protect_object(path):
    """Scheme, position, kept position, {node: [(rank, manifest checksum, stream bytes, manifest bytes)]}, pieces."""
    file = path.read_bytes()
    head_bytes = struct.unpack_from("<Q", file, 24)[0]
    head = open_record(file, "TRCPROTE", head_bytes)
    (epoch, run, _ranks, _uid, scheme, losses, node_count, position, kept, piece_count, piece_bytes, part_count,
     directory_bytes, job_bytes) = struct.unpack_from("<QIIQIIIIIIQQII", head, 32)
    must((epoch, run, head[104:104 + job_bytes]) == (12, 3, b"golden"), f"{path}: name")
    at = 208 + (directory_bytes + 7) // 8 * 8
    counts = [struct.unpack_from("<IIQ", head, at + 16 * i) for i in range(node_count)]
    at += 16 * node_count
    parts = [struct.unpack_from("<IIQQ", head, at + 24 * i) for i in range(part_count)]
    at += 24 * part_count
    nodes = {node: [parts.pop(0) for _ in range(count)] for node, _zero, count in counts}
    longest = max(sum(4096 + part[2] for part in listed) for listed in nodes.values())
    must(piece_count == (1 if scheme == 1 else losses), f"{path}: piece count")
    column = -(-longest // (node_count - losses))
    must(scheme == 1 or piece_bytes == -(-column // 4096) * 4096, f"{path}: piece bytes")
    pieces = []
    for piece in range(piece_count):
        data = file[head_bytes + piece * piece_bytes:][:piece_bytes]
        for i in range(0, piece_bytes, 262144):
            must(crc32c(data[i:i + 262144]) == struct.unpack_from("<I", head, at)[0], f"{path}: checksum")
            at += 4
        pieces.append(data)
    return scheme, position, kept, nodes, pieces


def read_regions(rank, stream, manifest_bytes):
    """{name: (data, array)}"""
    found_rank, _, stream_bytes, regions, _apart = read_manifest(stream[:manifest_bytes])
    must((found_rank, stream_bytes) == (rank, len(stream)), "manifest of another stream")
    found = {}
    for name, (offset, size, array, crcs) in regions.items():
        data = stream[offset:offset + size]
        must([crc32c(data[i:i + 262144]) for i in range(0, size, 262144)] == list(crcs), f"{name}: checksum")
        found[name] = (data, array)
    return found


def expected_data(rank, region, size):
    """As tests/format/samples.cc fills the regions of the samples."""
    return bytes((rank * 83 + region * 29 + i * 7 + (i >> 8) * 13) & 0xFF for i in range(size))


def check_version(golden, more_regions, expected_directory):
    streams = read_epoch(golden, "golden", 12, 3)
    for rank in range(3):
        regions = read_regions(rank, *streams[rank])
        shapes = ((6, 5), (2 * rank, 0), (2, 5))
        must(regions == {"particles": (expected_data(rank, 0, 100 + 10 * rank), None),
                         "grid": (expected_data(rank, 1, 20), (4, *shapes, 0)),
                         **({"halo": (expected_data(rank, 2, 20), (4, *shapes, 3))} if more_regions else {})},
             f"rank {rank}")
    rank, stream, manifest_bytes, directory = read_part(golden / "golden.e000000012.r0003.p00001.capture")
    must(rank == 1 and stream == streams[1][0] and manifest_bytes == streams[1][1], "captured part")
    must(directory == expected_directory, "the part's shared directory")


def check_protect_objects(golden):
    """Node 2 keeps node 1's part; node 0 the XOR of a column of node 1's part and one of node 2's."""
    streams = read_epoch(golden, "golden", 12, 3)
    part = (golden / "golden.e000000012.r0003.p00001.capture").read_bytes()
    scheme, position, kept, nodes, pieces = read_protect_object(golden / "golden.e000000012.r0003.n00002.protect")
    must((scheme, position, kept, pieces) == (1, 2, 1, [part]), "the partner's copy")
    must(nodes == {rank: [(rank, crc32c(stream[:size]), len(stream), size)] for rank, (stream, size) in streams.items()},
         "the nodes' parts")
    scheme, position, kept, nodes, pieces = read_protect_object(golden / "golden.e000000012.r0003.n00000.protect")
    must((scheme, position, kept) == (2, 0, 0), "the parity's head")
    size = len(pieces[0])
    columns = part[:size], streams[2][0][size - 4096:]
    columns = [column + bytes(size - len(column)) for column in columns]
    must(pieces[0] == bytes(a ^ b for a, b in zip(*columns)), "the parity")


def check(golden, page):
    must(crc32c(b"123456789") == 0xE3069283, "crc32c")
    check_version(golden / "1.0", False, "")
    for version in ("1.1", "1.2"):
        check_version(golden / version, True, "/scratch/run 7")
        check_protect_objects(golden / version)
    rank, stream, manifest_bytes, _ = read_part(golden / "1.2" / "golden.e000000013.r0003.p00001.capture")
    must(read_regions(rank, stream, manifest_bytes)["file/out.bin"][0] == expected_data(1, 2, 300), "a file")

    text = page.read_text()
    dumped = (golden / re.search(r"tests/format/golden/(\S+?1of2\.tailrace)`", text)[1]).read_bytes()
    lines = re.findall(r"^    ([0-9a-f]{8})  ((?:[0-9a-f]{2} {1,2})+)", text, re.M)
    must(len(lines) >= 20, "the page shows hardly any bytes")
    for offset, shown in lines:
        shown = bytes.fromhex(shown)
        must(dumped[int(offset, 16):][:len(shown)] == shown, f"the page's line {offset} is not what the file holds")
    print(f"read 3 ranks and captured parts of three versions, protect objects, and {len(lines)} lines of the page")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--check"] and len(sys.argv) == 4:
        check(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    elif len(sys.argv) == 7:
        all_streams = read_epoch(pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        wanted = int(sys.argv[5])
        sys.stdout.buffer.write(read_regions(wanted, *all_streams[wanted])[sys.argv[6]][0])
    else:
        sys.exit(__doc__)
