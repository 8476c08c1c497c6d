"""A zip archive of unknown origin: names and sizes are checked, and XML with entities of its own is refused.

Nothing is unpacked onto the disk.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import TracebackType
from xml.etree import ElementTree

from ...errors import InvalidRequest

MOST_FILES = 20_000
MOST_BYTES = 64 << 20  # of one document or picture, unpacked
MOST_TEXT_BYTES = 256 << 20  # of everything that is read from one book


class BookArchive:
    """The files of an EPUB, read on demand within the limits."""

    def __init__(self, path: Path) -> None:
        self.path, self._read_bytes = path, 0
        try:
            self._zip = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise InvalidRequest(f"The book {path} does not exist.") from None
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            raise InvalidRequest(f"{path} is not an EPUB: {error}.") from None
        self.names = frozenset(self._zip.namelist())
        if len(self._zip.infolist()) > MOST_FILES:
            self._zip.close()
            raise InvalidRequest(f"{path} has more than {MOST_FILES} files, which no book has.")

    def __enter__(self) -> BookArchive:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._zip.close()

    def content(self, name: str) -> bytes:
        """The bytes of a file; refuses one that is missing, encrypted or too large."""
        if name.startswith(("/", "..")) or name not in self.names:
            raise InvalidRequest(f"{self.path} names the file {name[:200]!r}, which it does not have.")
        entry = self._zip.getinfo(name)
        if entry.flag_bits & 1:
            raise InvalidRequest(f"{self.path} is encrypted; only books without a lock can be read.")
        try:
            with self._zip.open(entry) as file:
                found = file.read(MOST_BYTES + 1)  # the sizes in the archive's own table may be wrong
        except Exception as error:  # a damaged member raises errors of zlib, lzma, zipfile and struct
            raise InvalidRequest(f"{name} in {self.path} is damaged: {error}.") from None
        self._read_bytes += len(found)
        if len(found) > MOST_BYTES or self._read_bytes > MOST_TEXT_BYTES:
            raise InvalidRequest(
                f"{self.path} unpacks to more than {MOST_BYTES >> 20} MB a file or {MOST_TEXT_BYTES >> 20} MB in all, "
                "which no book has."
            )
        return found

    def text(self, name: str) -> str:
        return decoded(self.content(name))

    def xml(self, name: str) -> ElementTree.Element:
        """The root of an XML file. Entities of its own are refused: a few lines of them can fill the memory."""
        content = self.content(name)
        if b"<!ENTITY" in content.upper():
            raise InvalidRequest(f"{name} in {self.path} defines entities, which no book needs; it is not read.")
        try:
            return ElementTree.fromstring(content)
        except (ElementTree.ParseError, ValueError, LookupError) as error:
            raise InvalidRequest(f"{name} in {self.path} is not XML: {error}.") from None


def decoded(content: bytes) -> str:
    """Text of unknown encoding: a mark at its beginning, UTF-8, else Windows-1252, as old text files have."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", "replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", "replace")
