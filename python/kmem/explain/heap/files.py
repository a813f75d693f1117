# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Finds heap profiles among the files of `kmem explain`, by their first bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kmem.common.errors import BadUsage, KmemError
from kmem.explain.files import DAMAGED, MOST_BYTES, load, unpacked
from kmem.explain.heap.dhat import is_dhat, read_dhat
from kmem.explain.heap.lists import list_of, read_list
from kmem.explain.heap.profile import EXPECTED, HeapProfile
from kmem.explain.heap.text import is_text, read_text

GZIP = b"\x1f\x8b"
FIRST_BYTES = 64


def is_proto(content: bytes) -> bool:
    """Field 1 or 11 of pprof's message, a ValueType: its length, and then its field 1.

    No text begins so, as the length is a control character.
    """
    return content[:1] in (b"\n", b"Z") and content[1:2] < b"\x20" and content[2:3] == b"\x08"


def plain(content: bytes) -> bytes:
    """As the file has it where that cannot be unpacked, for the reader of tables to say so."""
    try:
        return unpacked(content)
    except DAMAGED:
        return content


def is_profile(content: bytes, text: bytes) -> bool:
    """By the content of a file, and by what was packed in it."""
    packed = content is not text and content.startswith(GZIP)
    if is_text(text) or is_dhat(text) or is_proto(text) or (packed and is_binary(text)):
        return True
    return list_of(text) != ""


def is_binary(text: bytes) -> bool:
    """A message of pprof may begin with any of its fields; a tar is no message."""
    return text[257:262] != b"ustar" and any(byte < ord("\t") for byte in text[:FIRST_BYTES])


def profiles_among(
    files: Sequence[Path],
) -> tuple[list[HeapProfile], Mapping[Path, bytes]]:
    """The profiles, or none; and the contents that were read in search of them.

    Profiles and tables have no answers in common, so a command takes one or the other.
    """
    contents = {file: load(file) for file in files if not file.is_dir()}
    texts = {file: plain(content) for file, content in contents.items()}
    found = [file for file, text in texts.items() if is_profile(contents[file], text)]
    if not found:
        return [], contents
    for file in files:
        if file not in found:
            raise BadUsage(
                f"explain: {file}: no heap profile, as {found[0]} is; expected either profiles or"
                " tables"
            )
    return [profile_of(file, texts[file]) for file in files], contents


def profile_of(file: Path, content: bytes) -> HeapProfile:
    if len(content) > MOST_BYTES:
        raise KmemError(f"explain: {file}: expected at most {MOST_BYTES >> 20} MiB")
    if is_text(content):
        profile = read_text(str(file), content)
    elif is_dhat(content):
        profile = read_dhat(str(file), content)
    elif form := list_of(content):
        profile = read_list(str(file), content, form)
    else:
        from kmem.common.tree import need_extra

        need_extra("profile")
        from kmem.explain.heap.proto import read_proto

        profile = read_proto(str(file), content)
    if isinstance(profile, str):
        raise KmemError(f"explain: {file}: {profile}; {EXPECTED}")
    if not profile.stacks:
        fault = next(iter(profile.unread), None)
        reason = f"line {fault.line}: {fault.reason}" if fault and fault.line else "no object in it"
        raise KmemError(f"explain: {file}: {reason}; {EXPECTED}")
    return profile
